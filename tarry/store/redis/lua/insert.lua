-- insert: keeps new jobs.
-- Keys: jobs, ids, counts, sizes, and the lines where the jobs wait; of jobs with a key also keys; wakes for `w`.
-- Arguments: 0, or 1 if nothing about the jobs is unusual, or 2 if it is only one besides; how many they are, ids and
-- records in turn. Then, for 1, what that comes to: the runs (how many; line, width, entries), the ids as one run, the
-- tallies (how many; field, count, size). For 2, its line, entry, the field of its tally and its size. Last, the record
-- of what they count as, or nothing.
-- Answer: positions and ids of those whose key another job holds, in turn.
-- Cost: plain new jobs: one read, one write of all records and three commands a line. Others: some six commands each.

function lib.add_to_waiting(line, width, run)
  local new = lib.add(lib.P .. line, width, run)
  if new and line ~= 'due' then lib.call('SADD', lib.P .. 'queues', lib.sub(line, 3)) end
end

function lib.count_new(field, count, size)
  lib.call('HINCRBY', lib.P .. 'counts', field, count)
  if size ~= '0' then lib.call('HINCRBY', lib.P .. 'sizes', field, size) end
end

-- The shortest way for one plain job, which is what most calls insert.
function lib.insert_single()
  local id, entry = ARGV[3], ARGV[6]
  if lib.call('HSETNX', KEYS[1], id, ARGV[4]) == 1 then
    lib.add_to_waiting(ARGV[5], #entry, entry)
    lib.add(lib.P .. 'ids', 16, id)
    lib.count_new(ARGV[7], '1', ARGV[8])
    lib.to_journal(ARGV[9], '1')
    lib.wake('w')
  end
  return {}
end

function lib.are_new(last)
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
  if ARGV[1] == '0' or lib.call('EXISTS', lib.P .. 'limits') == 1 then return nil end
  if ARGV[1] == '2' then return lib.insert_single() end
  local at = 3 + 2 * ARGV[2]
  if not lib.are_new(at - 2) then return nil end
  lib.call('HSET', KEYS[1], unpack(ARGV, 3, at - 1))
  for _ = 1, ARGV[at] do
    lib.add_to_waiting(ARGV[at + 1], 0 + ARGV[at + 2], ARGV[at + 3])
    at = at + 3
  end
  lib.add(lib.P .. 'ids', 16, ARGV[at + 1])
  at = at + 2
  for _ = 1, ARGV[at] do
    lib.count_new(ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
    at = at + 3
  end
  lib.to_journal(ARGV[#ARGV], '1')
  lib.wake('w')
  return {}
end

-- Answers the id under which the job lives: its own, or that of the job that holds its key; and whether it is new.
function lib.insert_one(id, record, limits)
  if lib.call('HEXISTS', lib.JOBS, id) == 1 then return id, false end
  local tail = lib.tail_of(record)
  if tail.key then
    local lives = lib.key_holder(lib.key_field(tail.task, tail.key), id, lib.parse('>I8', lib.since_of(record)))
    if lives then return lives, false end
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
  lib.each_label(lib.add_to_line, tail, id)
  local _, note = lib.tail_position(record)
  lib.tally(lib.byte(record, 1), tail.names, 1, lib.tail_size(tail, note))
  return id, true
end

-- Writes what was gathered, counts the new jobs, and wakes somebody if there are any. digits: 1 for each new job, else
-- 0.
function lib.end_insert(digits)
  lib.write_lines()
  local any = next(lib.tallies)
  lib.write_tallies()
  lib.to_journal(ARGV[#ARGV], lib.concat(digits))
  if any then lib.wake('w') end
end

function lib.insert()
  local held, digits, limits, ids, records = {}, {}, lib.read_limits(), {}, {}
  for number = 1, tonumber(ARGV[2]) do ids[number] = ARGV[2 * number + 1] end
  local old, known = lib.fetch(lib.JOBS, ids), {}
  for number, id in ipairs(ids) do
    local lives, is_new = id, false
    if not old[number] and not known[id] then
      lives, is_new = lib.insert_new(id, ARGV[2 * number + 2], limits, records)
      -- One that was refused for its key may come again with another.
      known[id] = is_new
    end
    lib.note_holder(held, number, id, lives)
    digits[number] = is_new and '1' or '0'
  end
  lib.call_in_batches('HSET', lib.JOBS, records)
  lib.end_insert(digits)
  return held
end

-- By names, what is known of jobs of this queue and task.
lib.new_of_names = {}
function lib.new_of(names, limits)
  local of = lib.new_of_names[names]
  if not of then
    local queue, task = lib.split_names(names)
    of = {queue = queue, task = task, names = names, needs_lane = lib.lane_for(limits, task, nil) ~= nil}
    lib.new_of_names[names] = of
  end
  return of
end

-- As `insert_one`, of a job that is not there. What most jobs have to be written is added to `records`.
function lib.insert_new(id, record, limits, records)
  local names, size, at, from = lib.names_and_size(record)
  if not names then return lib.insert_one(id, record, limits) end
  local of, lane, state = lib.new_of(names, limits), nil, lib.byte(record, 1)
  if from > at + 1 then
    lane = lib.sub(record, at + 3, from - 1)
  elseif of.needs_lane then
    lane, record = '', lib.sub(record, 1, at - 1) .. lib.NO_LANE_NAME .. lib.sub(record, at + 1)
  end
  local count = #records
  records[count + 1], records[count + 2] = id, record
  if state == lib.READY and lane then
    lib.add_to_lane(of, lane, id, record)
  else
    of.lane = lane
    lib.add_to_line(lib.line_and_entry(id, record, of))
  end
  lib.add_to_line(lib.IDS, id)
  lib.tally(state, names, 1, size)
  return id, true
end

-- How a tail begins that has nothing unusual but the lane without a name.
lib.NO_LANE_NAME = string.char(lib.LANE_FLAG, 0, 0)

-- As `add_to_line` of what `line_and_entry` answers, of a ready job.
function lib.add_to_lane(of, lane, id, record)
  local flags = lib.byte(record, 14)
  local claim_order = flags % 2 == 1 and lib.sub(record, 15, 20) or ''
  local band = lib.band_of(claim_order)
  local group = of[band] or lib.lane_group(of.queue, band, of.task)
  of[band] = group
  local is_late = flags % 4 > 1 and lib.is_late(record)
  local key, entry = group.prefix .. lane, claim_order .. lib.sub(record, 6, 13) .. id .. (is_late and '\1' or '\0')
  -- Mostly it is the only one of its lane.
  if lib.line_adds[key] then return lib.add_to_line(key, entry) end
  lib.line_adds[key], lib.touched_lanes[key] = {entry}, {group, lane}
end

-- insert_bounded: keeps new jobs, of queues and keys with a bound only as many as there is room for.
-- Keys: as insert.
-- Arguments: as insert for unusual jobs; before the last, how many queues are bounded, of each its name and how many of
-- its jobs may wait; and of each bounded key of a task in a queue these three, queue first, and how many may be ready.
-- Answer: positions and ids of those whose key another job holds, in turn; positions of those that are refused since
-- their queue is full, and of those whose key is.
-- Cost: as insert for unusual jobs, one read of all counts if queues are bounded, and three commands a bounded key.
function lib.insert_bounded()
  local at = 3 + 2 * ARGV[2]
  local rooms, key_rooms = lib.read_rooms(at + 1, at + 2 * ARGV[at]), lib.read_key_rooms(at + 1 + 2 * ARGV[at])
  local held, full, full_keys, digits, limits = {}, {}, {}, {}, lib.read_limits()
  for number = 1, tonumber(ARGV[2]) do
    local id, record = ARGV[2 * number + 1], ARGV[2 * number + 2]
    local tail = lib.tail_of(record)
    local queue, key = tail.queue, tail.lane and lib.lane_line(tail.queue, '', tail.task, tail.lane)
    digits[number] = '0'
    local refusing = lib.has_none(key_rooms, key) and full_keys or lib.has_none(rooms, queue) and full
    if refusing and lib.call('HEXISTS', lib.JOBS, id) == 0 then
      refusing[#refusing + 1] = number - 1
    else
      local lives, is_new = lib.insert_one(id, record, limits)
      lib.note_holder(held, number, id, lives)
      if is_new then
        digits[number] = '1'
        lib.take_room(rooms, queue)
        lib.take_room(key_rooms, key)
      end
    end
  end
  lib.end_insert(digits)
  return {held, full, full_keys}
end

function lib.has_none(rooms, name) return name and rooms[name] and rooms[name] <= 0 end

function lib.take_room(rooms, name)
  if name and rooms[name] then rooms[name] = rooms[name] - 1 end
end

-- How many more jobs each bounded key may have in a queue, by its line without a band. at: where they begin in the
-- arguments.
function lib.read_key_rooms(at)
  local rooms = {}
  for place = at, #ARGV - 1, 4 do
    local queue, task, lane, left = ARGV[place], ARGV[place + 1], ARGV[place + 2], ARGV[place + 3] + 0
    local key = lib.lane_line(queue, '', task, lane)
    for band, width in pairs(lib.WIDTHS) do
      if left > 0 then
        left = left - lib.count_between(lib.lane_line(queue, band, task, lane), width + 1, nil, nil, left)
      end
    end
    rooms[key] = left
  end
  return rooms
end

-- How many more jobs each bounded queue may have. at, last: where the bounds are in the arguments.
function lib.read_rooms(at, last)
  if last < at then return {} end
  local rooms, counts = {}, lib.call('HGETALL', lib.COUNTS)
  for place = at, last, 2 do rooms[ARGV[place]] = ARGV[place + 1] + 0 end
  for place = 1, #counts, 2 do
    local state, queue = lib.byte(counts[place]) - 48, lib.split_names(lib.sub(counts[place], 2))
    if state <= lib.READY and rooms[queue] then rooms[queue] = rooms[queue] - counts[place + 1] end
  end
  return rooms
end

function lib.note_holder(held, number, id, lives)
  if lives ~= id then
    held[#held + 1] = number - 1
    held[#held + 1] = lives
  end
end

-- supersede: ends the job that holds a key, and keeps the new job that takes the key.
-- Keys: as exchange and insert; cells, cellnames.
-- Arguments: now; the description of the change, the id of its job, and the record of what it counts as; of the
-- place that its attempt keeps the name, or nothing if it does not run, the owner and the names; id and record of the
-- new job, and the record of what it counts as.
-- Answer: 1; or 0, and nothing is done, if the change is not valid, or another job holds the key.
-- Cost: as a change of one job and insert of one job.
function lib.supersede()
  local now, limits = tonumber(ARGV[1]), lib.read_limits()
  local tail = lib.tail_of(ARGV[9])
  local holder = lib.key_holder(lib.key_field(tail.task, tail.key), ARGV[8], now)
  if holder and holder ~= ARGV[3] then return 0 end
  local valid = lib.apply({ARGV[2]}, {ARGV[3]}, '', limits, now)
  if valid ~= '1' then return 0 end
  lib.write_held()
  if ARGV[5] ~= '' then lib.keep_followed_place(ARGV[5], ARGV[6], ARGV[7], now) end
  if limits then lib.write_levels(now) end
  lib.to_journal(ARGV[4], valid)
  local _, is_new = lib.insert_one(ARGV[8], ARGV[9], limits)
  lib.end_insert({is_new and '1' or '0'})
  lib.wake(lib.wake_reasons({ARGV[2]}, limits))
  return 1
end
