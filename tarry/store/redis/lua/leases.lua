-- Owners: their leases, jobs that have lost theirs, progress of running jobs. And leases by name.

-- extend: prolongs an owner's lease.
-- Keys: leases; reads run.
-- Arguments: now, owner, lease, then ids and epochs in turn.
-- Answer: those ids that the owner does not run in that epoch.
-- Cost: one read of as many entries as there are ids.
function lib.extend()
  local now, owner, ids, lost = tonumber(ARGV[1]), ARGV[2], {}, {}
  for at = 4, #ARGV, 2 do ids[#ids + 1] = ARGV[at] end
  lib.extend_lease(owner, tonumber(ARGV[3]), now)
  for number, entry in ipairs(lib.fetch(lib.RUN, ids)) do
    local held = entry and lib.sub(entry, 1, 4) == ARGV[2 * number + 3] and lib.owner_of(entry) == owner
    if not held then lost[#lost + 1] = ids[number] end
  end
  return lost
end

-- Writes nothing while more than half of the lease is left.
function lib.extend_lease(owner, lease, now)
  local expires = tonumber(lib.call('ZSCORE', lib.LEASES, owner) or 0)
  if expires < now + math.floor(lease / 2) then
    lib.call('ZADD', lib.LEASES, string.format('%.0f', now + lease), owner)
  end
end

-- reclaim: finds running jobs of one owner, or of all whose lease is over.
-- Keys: reads held, leases, run, jobs.
-- Arguments: now, limit, and an owner or nothing.
-- Answer: ids, records and entries of `run` in turn.
-- Cost: one read of all of `run` if there is such an owner; else the number of owners.
function lib.reclaim()
  local now, limit, only = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
  local lost, any, ids, entries = {}, false, {}, {}
  for _, owner in ipairs(lib.call('HKEYS', lib.HELD)) do
    if only then
      lost[owner] = owner == only
    else
      lost[owner] = tonumber(lib.call('ZSCORE', lib.LEASES, owner) or 0) <= now
    end
    any = any or lost[owner]
  end
  local cursor = '0'
  while any do
    local answer = lib.call('HSCAN', lib.RUN, cursor, 'COUNT', lib.BATCH)
    for at = 1, #answer[2], 2 do
      local id, entry = answer[2][at], answer[2][at + 1]
      if lost[lib.owner_of(entry)] and not entries[id] and #ids < limit then
        ids[#ids + 1], entries[id] = id, entry
      end
    end
    cursor = answer[1]
    if cursor == '0' or #ids >= limit then break end
  end
  local found = {}
  for number, record in ipairs(lib.fetch(lib.JOBS, lib.sort(ids))) do
    found[3 * number - 2], found[3 * number - 1], found[3 * number] = ids[number], record, entries[ids[number]]
  end
  return found
end

-- save_progress: keeps the progress of those jobs that the owner runs in that epoch.
-- Keys: jobs, run, sizes; wakes for `f`.
-- Arguments: owner, then ids, epochs and progress in turn.
-- Answer: for each '1' if the owner runs it in that epoch, else '0'.
-- Cost: two reads and two writes a job.
function lib.save_progress()
  local owner, owned = ARGV[1], {}
  for at = 2, #ARGV, 3 do
    local id, entry = ARGV[at], lib.call('HGET', lib.RUN, ARGV[at])
    local is_held = entry and lib.sub(entry, 1, 4) == ARGV[at + 1] and lib.owner_of(entry) == owner
    owned[#owned + 1] = is_held and '1' or '0'
    if is_held then
      local record = lib.call('HGET', lib.JOBS, id)
      local tail = lib.tail_of(record)
      lib.tally(lib.RUNNING, tail.names, 0, #ARGV[at + 2] - #tail.progress)
      tail.progress = ARGV[at + 2]
      lib.call('HSET', lib.JOBS, id, lib.replace_tail(record, tail))
      lib.call('HSET', lib.RUN, id, lib.mark_unusual(entry))
    end
  end
  lib.write_tallies()
  lib.wake('f')
  return table.concat(owned)
end

-- hold: takes or prolongs a lease by name.
-- Keys: holds, leases.
-- Arguments: name, owner, until, now.
-- Answer: 1, or 0 while it is another's. One for longer than a day was taken while a clock was ahead: nobody's.
-- Cost: one read, two writes.
function lib.hold()
  local now = tonumber(ARGV[4])
  local other, expires = string.match(lib.call('HGET', lib.P .. 'holds', ARGV[1]) or '', '^(.*) (%S+)$')
  expires = tonumber(expires or 0)
  if other and other ~= ARGV[2] and expires > now and expires <= now + 86400000000 then return 0 end
  lib.call('HSET', lib.P .. 'holds', ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
  -- Owners that have not been heard of for a day.
  lib.call('ZREMRANGEBYSCORE', lib.P .. 'leases', '-inf', string.format('%.0f', now - 86400000000))
  return 1
end
