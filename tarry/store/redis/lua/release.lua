-- Releases nodes of flows (`flows.lua`): they were blocked, and wait for a worker or for their time from now on.

-- The times of a blocked job once it is released, as `rules.release` has them: its state, due and expires.
function lib.release_times(due, expires, now, now8)
  if due == lib.NO_TIME and (not expires or expires == lib.NO_TIME) then return lib.READY, now8, expires end
  local number = lib.parse('>I8', due)
  if number < lib.RELATIVE then due = lib.pack('>I8', now + number) end
  if lib.less(due, now8) then due = now8 end
  local relative = expires and expires ~= lib.NO_TIME and lib.parse('>I8', expires) < lib.RELATIVE
  if relative then expires = lib.add_times(due, expires) end
  return lib.less(now8, due) and lib.SCHEDULED or lib.READY, due, expires
end

-- What `release_record` needs of a blocked job: its tail, or of a plain one only a few fields of it; and its size.
-- tails: those that were read.
function lib.tail_to_release(record, tails, limits)
  local names, size = nil, nil
  if not limits then names, size = lib.plain_names(record) end
  if not names then
    local at, note = lib.tail_position(record)
    local tail = lib.parse_tail(record, at)
    return tail, lib.tail_size(tail, note)
  end
  local tail = tails[names]
  if not tail then
    tail = {queue = lib.split_names(names), names = names}
    tails[names] = tail
  end
  return tail, size
end

-- Makes a blocked job ready or scheduled; answers its record.
function lib.release_record(id, record, tails, limits, now, now8)
  local tail, size = lib.tail_to_release(record, tails, limits)
  local state, due, expires = lib.release_times(lib.due_of(record), tail.expires, now, now8)
  record = lib.as_waiting(record, state, due, now8)
  local lane = lib.lane_for(limits, tail.task, tail.lane)
  if expires ~= tail.expires or lane ~= tail.lane then
    tail.expires, tail.lane = expires, lane
    record = lib.replace_tail(record, tail)
  end
  lib.tally(lib.BLOCKED, tail.names, -1, -size)
  lib.tally(state, tail.names, 1, size)
  lib.add_to_line(lib.line_and_entry(id, record, tail))
  lib.released_ids[#lib.released_ids + 1] = id
  return record
end

-- Makes those of the nodes from `first` on that are blocked ready or scheduled; answers how many.
function lib.release_nodes(flow, first, count, now)
  local ids, written, tails, now8, limits = {}, {}, {}, lib.pack('>I8', now), lib.read_limits()
  for number = 1, count do ids[number] = lib.node_of(flow, first + number - 1) end
  for number, record in ipairs(lib.fetch(lib.JOBS, ids)) do
    if record and lib.byte(record, 1) == lib.BLOCKED then
      local place = #written
      written[place + 1] = ids[number]
      written[place + 2] = lib.release_record(ids[number], record, tails, limits, now, now8)
    end
  end
  lib.call_in_batches('HSET', lib.JOBS, written)
  return #written / 2
end
