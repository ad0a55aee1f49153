-- Jobs that came before their task was limited get its lane. There may be a million of them: so not all in one script,
-- and until all have it, claims look at what they take.
lib.LAYING = lib.P .. 'laying'

-- Answers whether it had none.
function lib.lay(id, record, entry)
  local tail = lib.tail_in(record)
  if tail.lane then return false end
  local ready = not entry and lib.byte(record, 1) == lib.READY
  if ready then lib.drop(lib.place(id, record, tail)) end
  tail.lane = ''
  if ready then lib.enlist(lib.place(id, record, tail)) end
  lib.call('HSET', lib.JOBS, id, lib.with_tail(record, tail))
  if entry then lib.call('HSET', lib.RUN, id, lib.unusual(entry)) end
  return true
end

local function lay_some(ids, tasks)
  local any = false
  for number, record in ipairs(lib.fetched(lib.JOBS, ids)) do
    if tasks[lib.tail_in(record).task] then any = lib.lay(ids[number], record, nil) or any end
  end
  lib.write_places()
  return any
end

function lib.laying()
  local tasks = {}
  for _, task in ipairs(lib.call('SMEMBERS', lib.LAYING)) do tasks[task] = true end
  return next(tasks) and tasks
end

-- Whether none of the first jobs of an open line belongs into a lane any more; false where there are too many for now.
function lib.laid(key, width, most, tasks)
  for _ = 1, 3 do
    local ids = {}
    lib.add_ids(ids, width, lib.peek(key, width, math.min(most, lib.MOST)))
    if not lay_some(ids, tasks) then return most <= lib.MOST end
  end
  return false
end
