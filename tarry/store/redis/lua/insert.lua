-- insert: keeps new jobs.
-- Keys: jobs, ids, counts, sizes, and the lines where the jobs wait; of jobs with a key also keys; wakes for `w`.
-- Arguments: 1 if nothing about the jobs is unusual, how many they are, ids and records in turn; then, if nothing is,
-- what that comes to: the runs (how many; line, width, entries), the ids as one run, the tallies (how many; field,
-- count, size).
-- Answer: positions and ids of those whose key another job holds, in turn.
-- Cost: plain new jobs: one read, one write of all records and three commands a line. Others: some six commands each.

function lib.are_new(last)
  if last == 3 then return lib.call('HEXISTS', KEYS[1], ARGV[3]) == 0 end
  local ids = {}
  for at = 3, last, 2 do ids[#ids + 1] = ARGV[at] end
  for _, record in ipairs(lib.call('HMGET', KEYS[1], unpack(ids))) do
    if record then return false end
  end
  return true
end

-- Inserts all jobs if they are all plain, none was there before, and no limit is set: then the rest of the script need
-- not even be begun. Else answers nil, and `insert` goes on.
function lib.insert_plain()
  local at = 3 + 2 * ARGV[2]
  if ARGV[1] ~= '1' or lib.call('EXISTS', lib.P .. 'limits') == 1 or not lib.are_new(at - 2) then return nil end
  lib.call('HSET', KEYS[1], unpack(ARGV, 3, at - 1))
  for _ = 1, ARGV[at] do
    local line = ARGV[at + 1]
    local new = lib.add(lib.P .. line, 0 + ARGV[at + 2], ARGV[at + 3])
    if new and line ~= 'due' then lib.call('SADD', lib.P .. 'queues', lib.sub(line, 3)) end
    at = at + 3
  end
  lib.add(lib.P .. 'ids', 16, ARGV[at + 1])
  at = at + 2
  for _ = 1, ARGV[at] do
    lib.call('HINCRBY', lib.P .. 'counts', ARGV[at + 1], ARGV[at + 2])
    if ARGV[at + 3] ~= '0' then lib.call('HINCRBY', lib.P .. 'sizes', ARGV[at + 1], ARGV[at + 3]) end
    at = at + 3
  end
  lib.wake('w')
  return {}
end

-- Answers the id under which the job lives: its own, or that of the job that holds its key.
function lib.insert_one(id, record, limits)
  if lib.call('HEXISTS', lib.JOBS, id) == 1 then return id end
  local tail = lib.tail_of(record)
  if tail.key then
    local lives = lib.key_holder(lib.key_field(tail.task, tail.key), id, lib.parse('>I8', lib.since_of(record)))
    if lives then return lives end
    lib.hold_key(tail, id)
  end
  local lane = lib.lane_for(limits, tail.task, tail.lane)
  if lane ~= tail.lane then
    tail.lane = lane
    record = lib.replace_tail(record, tail)
  end
  lib.call('HSET', lib.JOBS, id, record)
  lib.add_to_line(lib.line_and_entry(id, record, tail))
  lib.add_to_line(lib.IDS, id)
  local _, note = lib.tail_position(record)
  lib.tally(lib.byte(record, 1), tail.names, 1, lib.tail_size(tail, note))
  return id
end

function lib.insert()
  local held, limits = {}, lib.read_limits()
  for number = 1, tonumber(ARGV[2]) do
    local id = ARGV[2 * number + 1]
    local lives = lib.insert_one(id, ARGV[2 * number + 2], limits)
    if lives ~= id then
      held[#held + 1] = number - 1
      held[#held + 1] = lives
    end
  end
  lib.write_lines()
  local any = next(lib.tallies)
  lib.write_tallies()
  if any then lib.wake('w') end
  return held
end
