-- Signals, and who waits for one (`tarry/model/flow/signal.py`). An address is the length of the name (2 bytes), the
-- name and the key.
-- For each address a sorted set of ids by number, and a hash: id to until 8 and value. Hash: address to the number of
-- its last signal. Sorted sets: id and address of each signal by until; addresses by when their number is forgotten.
function lib.numbers_key(address) return lib.P .. 'sn:' .. address end
function lib.values_key(address) return lib.P .. 'sv:' .. address end
lib.LAST_SIGNALS = lib.P .. 'siglast'
lib.SIGNALS_UNTIL = lib.P .. 'sigs'
lib.LASTS_UNTIL = lib.P .. 'siglasts'
-- Sorted set, whose scores are all 0: name, 0, key, 0, job 16, epoch 4, the number after which 8, length of the name 2.
lib.AWAITED = lib.P .. 'awaited'
-- Hash, while a signal has not woken all who wait: address to the number of the signal 8 and the member woken last.
lib.WAKING = lib.P .. 'waking'
lib.MOST_KEPT = 100
-- How long after its last signal the number of an address is kept: 366 days.
lib.LAST_KEPT = 31622400000000

-- What the members of `awaited` for an address begin with.
function lib.awaited_prefix(address)
  local length = lib.parse('>I2', address)
  return lib.sub(address, 3, length + 2) .. '\0' .. lib.sub(address, length + 3) .. '\0'
end

function lib.awaited_member(address, job, epoch, after)
  return lib.awaited_prefix(address) .. job .. epoch .. after .. lib.sub(address, 1, 2)
end

-- Job and epoch of a member of `awaited`.
function lib.parse_awaited(member) return lib.sub(member, -30, -15), lib.sub(member, -14, -11) end

-- The record of a job if it sleeps in that epoch; else nil.
function lib.sleeping(job, epoch)
  local record = lib.fetch_record(job)
  local sleeps = record and lib.byte(record, 1) == lib.SCHEDULED and lib.sub(record, 2, 5) == epoch
  return sleeps and record or nil
end

-- Makes a job ready that sleeps in that epoch; answers whether it does.
function lib.wake_job(job, epoch, now8)
  local record = lib.sleeping(job, epoch)
  if not record then return false end
  local at, note = lib.tail_position(record)
  local tail, due = lib.parse_tail(record, at), lib.due_of(record)
  lib.remove_from_line(lib.line_and_entry(job, record, tail))
  record = lib.as_waiting(record, lib.READY, lib.less(now8, due) and now8 or due, now8)
  lib.move_tally(lib.SCHEDULED, lib.READY, tail, note)
  lib.add_to_line(lib.line_and_entry(job, record, tail))
  lib.call('HSET', lib.JOBS, job, record)
  lib.settled.woken = lib.settled.woken + 1
  return true
end

-- Notes that a job sleeps for a signal, by the change that was made; wakes it if the signal is there by now. The last
-- number does not tell: its signal may have been deleted since, and the job would find nothing.
function lib.await_signal(job, awaits)
  local record = lib.fetch_record(job)
  local epoch = record and lib.sub(record, 2, 5)
  if not record or not lib.sleeping(job, epoch) then return end
  local after = string.format('(%.0f', lib.parse('>I8', awaits.after))
  if #lib.call('ZRANGEBYSCORE', lib.numbers_key(awaits.address), after, '+inf', 'LIMIT', '0', '1') > 0 then
    return lib.wake_job(job, epoch, lib.since_of(record))
  end
  lib.call('ZADD', lib.AWAITED, '0', lib.awaited_member(awaits.address, job, epoch, awaits.after))
end

-- signal: keeps a signal, and wakes the jobs that wait for it, up to so many.
-- Keys: those above, and those of exchange; wakes for `w` and `f`.
-- Arguments: now, address, id, until, until 8 and value in one text, how many jobs to wake.
-- Answer: how many jobs it woke; 1 if there may be more, else 0.
-- Cost: some ten commands, and for each job that it wakes some eight.
function lib.signal()
  local address, id, expires = ARGV[2], ARGV[3], ARGV[4]
  local numbers, values = lib.numbers_key(address), lib.values_key(address)
  if lib.call('ZSCORE', numbers, id) then return {0, 0} end
  local number = lib.call('HINCRBY', lib.LAST_SIGNALS, address, '1')
  lib.call('ZADD', numbers, number, id)
  lib.call('HSET', values, id, ARGV[5])
  lib.call('ZADD', lib.SIGNALS_UNTIL, expires, id .. address)
  lib.call('ZADD', lib.LASTS_UNTIL, 'GT', string.format('%.0f', expires + lib.LAST_KEPT), address)
  for _, old in ipairs(lib.call('ZRANGE', numbers, '0', -1 - lib.MOST_KEPT)) do lib.drop_signal(address, old) end
  return lib.end_waking(lib.wake_waiting(address, '', lib.pack('>I8', number), ARGV[6], lib.pack('>I8', ARGV[1])))
end

-- wake_more: goes on with a signal that has not woken all who wait.
-- Keys: as signal.
-- Arguments: now, address, how many jobs to wake.
-- Answer: as signal.
-- Cost: for each job that it wakes some eight commands.
function lib.wake_more()
  return lib.end_waking(lib.wake_next(ARGV[2], ARGV[3], lib.pack('>I8', ARGV[1])))
end

-- The next piece for an address: how many it woke, whether there may be more.
function lib.wake_next(address, most, now8)
  local state = lib.call('HGET', lib.WAKING, address)
  if not state then return 0, false end
  local woken, more = lib.wake_waiting(address, lib.sub(state, 9), lib.sub(state, 1, 8), most, now8)
  if not more then lib.call('HDEL', lib.WAKING, address) end
  return woken, more
end

function lib.end_waking(woken, more)
  lib.write_lines()
  lib.write_tallies()
  if woken > 0 then lib.wake('wf') end
  return {woken, more and 1 or 0}
end

function lib.drop_signal(address, id)
  lib.call('ZREM', lib.numbers_key(address), id)
  lib.call('HDEL', lib.values_key(address), id)
  lib.call('ZREM', lib.SIGNALS_UNTIL, id .. address)
end

-- Wakes up to so many who wait at an address, behind a member of `awaited` or from the first one, and do not know the
-- signal of this number; notes how far it came. Answers how many, and whether there may be more.
function lib.wake_waiting(address, behind, number8, most, now8)
  local prefix, woken = lib.awaited_prefix(address), 0
  local first, last = behind ~= '' and '(' .. behind or '[' .. prefix, '(' .. prefix .. string.rep('\255', 17)
  local members = lib.call('ZRANGEBYLEX', lib.AWAITED, first, last, 'LIMIT', '0', most)
  for _, member in ipairs(members) do
    -- A name or a key may have a 0 in it.
    local is_here = #member == #prefix + 30 and lib.sub(member, -2) == lib.sub(address, 1, 2)
    if is_here and lib.less(lib.sub(member, -10, -3), number8) then
      local job, epoch = lib.parse_awaited(member)
      if lib.wake_job(job, epoch, now8) then woken = woken + 1 end
      lib.call('ZREM', lib.AWAITED, member)
    end
  end
  local more = #members == tonumber(most)
  if more then lib.call('HSET', lib.WAKING, address, number8 .. members[#members]) end
  return woken, more
end

-- read_signals: the signals of an address.
-- Keys: reads those above.
-- Arguments: address, the number after which.
-- Answer: numbers, ids; until and value of each in one text.
-- Cost: two reads.
function lib.read_signals()
  local found = lib.call('ZRANGEBYSCORE', lib.numbers_key(ARGV[1]), '(' .. ARGV[2], '+inf', 'WITHSCORES')
  local ids, numbers = {}, {}
  for at = 1, #found, 2 do ids[#ids + 1], numbers[#numbers + 1] = found[at], found[at + 1] end
  return {numbers, ids, lib.fetch(lib.values_key(ARGV[1]), ids)}
end

-- read_awaited: the jobs that wait for signals whose name begins with a text.
-- Keys: reads awaited, jobs, ends.
-- Arguments: where to begin and to end, as ZRANGEBYLEX has it; how many at most.
-- Answer: members of `awaited`; the last one that was looked at, nothing if there is no more.
-- Cost: reads at most 1,000 jobs.
function lib.read_awaited()
  local found, last = {}, ''
  local members = lib.call('ZRANGEBYLEX', lib.AWAITED, ARGV[1], ARGV[2], 'LIMIT', '0', '1000')
  for _, member in ipairs(members) do
    if #found == tonumber(ARGV[3]) then break end
    last = member
    if lib.sleeping(lib.parse_awaited(member)) then found[#found + 1] = member end
  end
  return {found, last}
end

-- Deletes signals whose time is over, and numbers that are no longer needed; answers whether there were any signals,
-- and whether there are more.
function lib.drop_signals(now, limit)
  local until_now = string.format('%.0f', now)
  local old = lib.call('ZRANGEBYSCORE', lib.SIGNALS_UNTIL, '-inf', until_now, 'LIMIT', '0', limit + 1)
  for number = 1, math.min(#old, limit) do lib.drop_signal(lib.sub(old[number], 17), lib.sub(old[number], 1, 16)) end
  for _, address in ipairs(lib.call('ZRANGEBYSCORE', lib.LASTS_UNTIL, '-inf', until_now, 'LIMIT', '0', limit)) do
    lib.call('HDEL', lib.LAST_SIGNALS, address)
    lib.call('ZREM', lib.LASTS_UNTIL, address)
  end
  return #old > 0, #old > limit
end

-- Of the next 100 jobs that are said to wait, forgets those that were called since, or are gone: they will not sleep in
-- that epoch again. Not by their states: a job whose time has come may be put off again before it is called. Answers
-- the last one, nothing at the end.
function lib.drop_waits(after)
  local members = lib.call('ZRANGEBYLEX', lib.AWAITED, after ~= '' and '(' .. after or '-', '+', 'LIMIT', '0', '100')
  for _, member in ipairs(members) do
    local job, epoch = lib.parse_awaited(member)
    local record = lib.fetch_record(job)
    if not record or lib.sub(record, 2, 5) ~= epoch then lib.call('ZREM', lib.AWAITED, member) end
  end
  return #members == 100 and members[100] or ''
end
