-- exchange: makes changes, and gives ready jobs to an owner.
-- Keys: all of `index.lua`, and cells, cellnames where there are limits; wakes for `w`, `r` and `f`.
-- Arguments: now (empty: by the server's clock), owner, lease, limit, 1 if due jobs become ready, the wants (band 1,
-- length 2, queue, for each), the count of each want (4 bytes), the descriptions of changes (how many; each), the
-- numbers of the descriptions, the record of what they count as or nothing, then the ids of the jobs they are for.
-- Answer: a text of 1 and 0, which changes were made; ids and records of the claimed jobs in turn, as they were before;
-- the earliest due of a scheduled job, 8 bytes or nothing; when a rate allows the next start, or nothing; now; 1 if
-- jobs wait that start as soon as others of their limits have ended, else 0 or nothing.
-- Cost: if nothing is there, two reads. Else one read of all jobs, one of all changed jobs, and for each line, queue,
-- task and level that is touched a few writes.

-- Wants by their text: a library keeps them, since a worker wants the same again and again.
lib.PLANS, lib.PLANS_SIZE = {}, 0
function lib.plan_of(text)
  local plan = lib.PLANS[text]
  if not plan then
    plan = lib.parse_plan(text)
    if lib.PLANS_SIZE > 1000000 then lib.PLANS, lib.PLANS_SIZE = {}, 0 end
    lib.PLANS[text], lib.PLANS_SIZE = plan, lib.PLANS_SIZE + #text
  end
  return plan
end

-- The wants; the keys where their jobs may wait, which are both lines of each and its tasks with lanes; and those of
-- these keys that are seldom there.
function lib.parse_plan(text)
  local wants, keys, rare, at = {}, {}, {lib.PAUSED}, 1
  while at <= #text do
    local band, queue = lib.sub(text, at, at), lib.sub(text, at + 3, at + 2 + lib.parse('>I2', text, at + 1))
    local line, late, tasks = lib.open_line(queue, band), lib.open_line(queue, band, true), lib.tasks_key(queue, band)
    wants[#wants + 1] = {queue = queue, band = band, line = line, late = late, tasks = tasks}
    keys[#keys + 1], keys[#keys + 2], keys[#keys + 3] = line, late, tasks
    rare[#rare + 1], rare[#rare + 2] = late, tasks
    at = at + 3 + #queue
  end
  return {wants = wants, keys = keys, rare = rare}
end

function lib.any_exists(keys)
  for from = 1, #keys, 5000 do
    if lib.call('EXISTS', unpack(keys, from, math.min(#keys, from + 4999))) > 0 then return true end
  end
  return false
end

-- Whether a claim may find something.
function lib.has_work(now)
  local page = ARGV[6] ~= '' and lib.call('ZRANGE', lib.DUE, '0', '0')[1]
  return page and lib.parse('>I8', page) <= tonumber(now) or lib.any_exists(lib.plan_of(ARGV[6]).keys)
end

-- A claim that was sent long before it runs goes by the server's clock.
function lib.claim_time()
  if ARGV[1] ~= '' then return ARGV[1] end
  local time = lib.call('TIME')
  return string.format('%.0f', time[1] * 1000000 + time[2])
end

-- The answer if there is nothing to do and nothing to claim, as most of the time: then the rest of the script need not
-- even be begun. Else nil.
function lib.exchange_nothing()
  local now = lib.claim_time()
  if ARGV[8] ~= '0' or lib.has_work(now) then return nil end
  return {'', {}, lib.next_due(), '', now}
end

-- What `exchange_nodes` does besides, once the changes are made; and once jobs are claimed, to the reasons to wake.
lib.after_changes, lib.after_claim = nil, nil

function lib.exchange()
  local began = lib.claim_time()
  local now, owner, limit = tonumber(began), ARGV[2], tonumber(ARGV[4])
  local descriptions, ids, numbers, record = lib.read_changes(8)
  local limits, valid, reasons = lib.read_limits(), '', ''
  if #ids > 0 then
    valid = lib.apply(descriptions, ids, numbers, limits, now)
    reasons = lib.wake_reasons(descriptions, limits)
    if lib.after_changes then lib.after_changes(ids, valid, now) end
    if limits then lib.open_lowered_lanes() end
    lib.to_journal(record, valid)
  end
  local claimed, jobs, fine, why = {}, {}, true, nil
  if limit > 0 and (#ids == 0 or lib.has_work(began)) then
    fine, why = pcall(lib.claim_and_start, limits, owner, limit, now, claimed, jobs)
    if #claimed > 0 then
      if reasons == '' then reasons = 'f' end
      -- There may be more: each worker that is woken wakes the next.
      if #claimed == limit and not string.find(reasons, 'w', 1, true) then reasons = 'w' .. reasons end
      lib.retry_at = nil
    end
  end
  lib.write_held()
  if limits then lib.write_levels(now) end
  -- Also if the claim went wrong. And only now: what it counts is mostly what the changes count back.
  lib.write_tallies()
  if lib.after_claim then reasons = lib.after_claim(reasons, claimed) end
  if reasons ~= '' then lib.wake(reasons) end
  if not fine then error(why) end
  local again = lib.retry_at and string.format('%.0f', lib.retry_at) or ''
  return {valid, jobs, lib.next_due(), again, began, lib.is_held_back and 1 or 0}
end

-- Makes ready jobs run. Adds their ids to `claimed`, and ids and records in turn to `jobs`.
function lib.claim_and_start(limits, owner, limit, now, claimed, jobs)
  local fine, why = lib.claim(limits, limit, now, claimed)
  if #claimed > 0 then
    lib.start_jobs(claimed, owner, lib.pack('>I8', now), jobs)
    lib.extend_lease(owner, tonumber(ARGV[3]), now)
    lib.write_lines()
  end
  if not fine then error(why, 0) end
end

-- Takes ready jobs out of their lines, and adds their ids to `claimed`; answers true, or if something went wrong false
-- and the error.
function lib.claim(limits, limit, now, claimed)
  local plan = lib.plan_of(ARGV[6])
  local wants, is_rare = plan.wants, lib.any_exists(plan.rare)
  for number, want in ipairs(wants) do want.count = lib.parse('>I4', ARGV[7], 4 * number - 3) end
  if is_rare then wants = lib.unpaused(wants) end
  if #wants == 0 then return true end
  -- What was scheduled waits in the late lines.
  if ARGV[5] == '1' and lib.promote(now, lib.pack('>I8', now)) then is_rare = true end
  -- What was taken out of its lines before an error must run: else it is never found again.
  if limits or is_rare and lib.has_lanes(wants) then
    return pcall(lib.choose_limited, limits, wants, limit, now, claimed)
  end
  return pcall(lib.choose_unlimited, wants, limit, is_rare, claimed)
end

function lib.read_changes(at)
  local descriptions, ids = {}, {}
  local last = at + tonumber(ARGV[at])
  for number = at + 1, last do descriptions[#descriptions + 1] = ARGV[number] end
  for number = last + 3, #ARGV do ids[#ids + 1] = ARGV[number] end
  return descriptions, ids, ARGV[last + 1], ARGV[last + 2]
end

-- As `wake_reasons` in tarry/model/wake.py.
function lib.wake_reasons(descriptions, limits)
  local work, ended = limits, false
  for _, text in ipairs(descriptions) do
    if lib.byte(text, 2) >= lib.DONE then ended = true else work = true end
  end
  return (work and 'w' or '') .. (ended and 'r' or 'f')
end

-- Takes the earliest of the scheduled jobs whose time has come out of their line.
function lib.take_due_ids(now)
  local ids = {}
  while #ids < lib.BATCH do
    local page = lib.call('ZRANGE', lib.DUE, '0', '0')[1]
    if not page or lib.parse('>I8', page) > now then break end
    local size = 0
    while size < #page and #ids < lib.BATCH and lib.parse('>I8', page, size + 1) <= now do
      ids[#ids + 1] = lib.sub(page, size + 9, size + 24)
      size = size + 24
    end
    lib.pop(lib.DUE, 24, size / 24)
  end
  return ids
end

-- Makes scheduled jobs whose time has come ready, the earliest first. Answers whether there were any.
function lib.promote(now, now8)
  local ids = lib.take_due_ids(now)
  if #ids == 0 then return false end
  local ready = {}
  for number, record in ipairs(lib.fetch(lib.JOBS, ids)) do
    local id = ids[number]
    local at, note = lib.tail_position(record)
    local tail = lib.parse_tail(record, at)
    record = lib.as_waiting(record, lib.READY, lib.due_of(record), now8)
    ready[2 * number - 1], ready[2 * number] = id, record
    lib.move_tally(lib.SCHEDULED, lib.READY, tail, note)
    lib.add_to_line(lib.line_and_entry(id, record, tail))
  end
  lib.call_in_batches('HSET', lib.JOBS, ready)
  lib.write_lines()
  return true
end

function lib.append_ids(ids, width, entries)
  local count = #ids
  for at = width - 15, #entries, width do
    count = count + 1
    ids[count] = lib.sub(entries, at, at + 15)
  end
end

-- Takes up to so many of the first of a line; one that had fewer is not looked at again.
function lib.take_first(key, width, most, empty, ids)
  if most == 0 or empty[key] then return end
  local entries = lib.pop(key, width, most)
  empty[key] = #entries < most * width
  lib.append_ids(ids, width, entries)
end

-- Takes ready jobs out of their lines and adds their ids: first up to its count for each want, then whatever there is,
-- in turn.
function lib.choose_unlimited(wants, limit, may_be_late, ids)
  local empty = {}
  for _, fill in ipairs({false, true}) do
    for _, want in ipairs(wants) do
      local most = math.min(fill and limit or want.count, limit - #ids)
      if most > 0 then
        local width, late = lib.WIDTHS[want.band], may_be_late and lib.late_share(want, most) or 0
        lib.take_first(want.late, width, late, empty, ids)
        lib.take_first(want.line, width, most - late, empty, ids)
      end
    end
  end
end

-- The record of a claimed job; one that was to hold its key only while it waits releases it.
function lib.release_waiting_key(id, record, tail)
  if not tail.key or tail.key_ttl ~= lib.WHILE_WAITING or tail.key_held_until == lib.NO_TIME then return record end
  lib.release_key(tail, id)
  tail.key_held_until = lib.NO_TIME
  record = lib.replace_tail(record, tail)
  lib.call('HSET', lib.JOBS, id, record)
  return record
end

-- How the entry of a claimed job in `run` begins.
function lib.running_since(epochs, epoch, now8)
  local since = epochs[epoch]
  if not since then
    since = lib.pack('>I4', math.min(lib.parse('>I4', epoch), 2147483646) + 1) .. now8
    epochs[epoch] = since
  end
  return since
end

-- Makes jobs run. Adds ids and records in turn to `jobs`, as they were but for keys that were released.
function lib.start_jobs(ids, owner, now8, jobs)
  local entries, epochs, counts, sizes, texts = {}, {}, {}, {}, {}
  for number, record in ipairs(lib.records_to_start(ids)) do
    local id, epoch = ids[number], lib.sub(record, 2, 5)
    local names, size, at, from = lib.names_and_size(record)
    local text, size4 = '\0\0', '\0\0\0\0'
    if not names then
      local tail = lib.tail_of(record)
      names, size = tail.names, lib.tail_size(tail, (select(2, lib.tail_position(record))))
      record = lib.release_waiting_key(id, record, tail)
    elseif lib.byte(record, 14) < 16 then
      text = names
      local said = size
      if from > at + 1 then
        text, said = lib.sub(record, at + 1, from + #names - 1), size + lib.HAS_LANE
      end
      size4 = texts[said]
      if not size4 then
        size4 = lib.pack('>I4', said)
        texts[said] = size4
      end
    end
    counts[names], sizes[names] = (counts[names] or 0) + 1, (sizes[names] or 0) + size
    local last = 2 * number
    jobs[last - 1], jobs[last], entries[last - 1] = id, record, id
    entries[last] = lib.running_since(epochs, epoch, now8) .. size4 .. text .. owner
  end
  for names, count in pairs(counts) do
    lib.tally(lib.READY, names, -count, -sizes[names])
    lib.tally(lib.RUNNING, names, count, sizes[names])
  end
  lib.set_many(lib.RUN, entries)
  lib.freed_counts[owner] = (lib.freed_counts[owner] or 0) - #ids
end

function lib.has_lanes(wants)
  local keys = {}
  for number, want in ipairs(wants) do keys[number] = want.tasks end
  return lib.any_exists(keys)
end

-- The wants whose queues are not paused.
function lib.unpaused(wants)
  if lib.call('EXISTS', lib.PAUSED) == 0 then return wants end
  local left = {}
  for _, want in ipairs(wants) do
    if lib.call('SISMEMBER', lib.PAUSED, want.queue) == 0 then left[#left + 1] = want end
  end
  return left
end

function lib.next_due()
  local page = lib.call('ZRANGE', lib.DUE, '0', '0')[1]
  return page and lib.sub(page, 1, 8) or ''
end
