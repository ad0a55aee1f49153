-- Where jobs stand: which line, at which place. What a script changes is gathered, and written in few commands.
lib.JOBS, lib.IDS, lib.RUN, lib.ENDS = KEYS[1], lib.P .. 'ids', lib.P .. 'run', lib.P .. 'ends'
lib.HELD, lib.LEASES, lib.DUE = lib.P .. 'held', lib.P .. 'leases', lib.P .. 'due'
lib.KEYED, lib.QUEUES, lib.PAUSED = lib.P .. 'keys', lib.P .. 'queues', lib.P .. 'paused'
lib.FINISHED, lib.WEIGHTS = lib.P .. 'finished', lib.P .. 'weights'
lib.LIMITS, lib.LEVELS, lib.TURNS = lib.P .. 'limits', lib.P .. 'levels', lib.P .. 'turns'
lib.CLOSED, lib.AGAIN, lib.OF = lib.P .. 'closed', lib.P .. 'again', '\31'
lib.COUNTS, lib.SIZES = lib.P .. 'counts', lib.P .. 'sizes'
lib.MOST = 1000

function lib.band_of(rank)
  if rank == '' then return 'n' end
  return lib.byte(rank) < 128 and 'h' or 'l'
end

-- Bytes of an entry by the band: [rank 6], due 8, id 16. In lanes one byte more says whether the job is late: a lane is
-- one line, in which no job overtakes another for that. Jobs without a lane have two lines, that of late ones with a
-- capital letter: however many these are, they are not in the way of what is on time.
lib.WIDTHS = {h = 30, n = 24, l = 30}
function lib.open_line(queue, band, late)
  return lib.P .. (late and string.upper(band) or band) .. ':' .. queue
end
function lib.tasks_key(queue, band) return lib.P .. 't' .. band .. ':' .. queue end
function lib.lanes_key(queue, band, task) return lib.P .. 'w' .. band .. #queue .. ':' .. queue .. ':' .. task end
function lib.open_key(queue, band, task) return lib.P .. 'o' .. band .. #queue .. ':' .. queue .. ':' .. task end
function lib.lane_line(queue, band, task, lane)
  return lib.P .. 'x' .. band .. #queue .. ':' .. queue .. ':' .. #task .. ':' .. task .. ':' .. lane
end
function lib.finished_line(queue) return lib.P .. 'f:' .. queue end

lib.added, lib.dropped, lib.laned, lib.unsorted = {}, {}, {}, {}

function lib.listed(lists, key)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  return list
end

-- The line and the entry of a job that does not run.
function lib.place(id, record, tail)
  local state, due = lib.byte(record, 1), lib.due_of(record)
  if state == lib.SCHEDULED then return lib.DUE, due .. id end
  if state ~= lib.READY then return lib.finished_line(tail.queue), lib.until_of(record) .. id end
  local rank, late = lib.rank_of(record), lib.is_late(record)
  local band, entry = lib.band_of(rank), rank .. due .. id
  if not tail.lane then return lib.open_line(tail.queue, band, late), entry end
  local key = lib.lane_line(tail.queue, band, tail.task, tail.lane)
  lib.laned[key] = {tail.queue, band, tail.task, tail.lane}
  return key, entry .. (late and '\1' or '\0')
end

function lib.enlist(key, entry)
  local list = lib.listed(lib.added, key)
  list[#list + 1] = entry
  lib.unsorted[key] = true
end

function lib.drop(key, entry)
  local list = lib.listed(lib.dropped, key)
  list[#list + 1] = entry
end

function lib.sorted(list)
  for number = 2, #list do
    if lib.less(list[number], list[number - 1]) then
      table.sort(list, lib.less)
      break
    end
  end
  return list
end

-- A claim looks only at lanes that are open. One that it finds full is closed, and opened again when one of its
-- attempts ends, its rate allows a start or its limit changes. `CLOSED` has, by task and lane, where such a lane is to
-- be opened: band 1, length 2, queue, one after another; `AGAIN` has those that wait for a rate, by the time when it
-- lets one start.
function lib.close_lane(queue, band, task, lane, again)
  local name, place = task .. lib.OF .. lane, band .. lib.pack('>I2', #queue) .. queue
  local places = lib.call('HGET', lib.CLOSED, name) or ''
  local at = 1
  while at <= #places and lib.sub(places, at, at + #place - 1) ~= place do
    at = at + 3 + lib.parsed('>I2', places, at + 1)
  end
  if at > #places then lib.call('HSET', lib.CLOSED, name, places .. place) end
  if again then lib.call('ZADD', lib.AGAIN, string.format('%.0f', again), name) end
  lib.call('ZREM', lib.open_key(queue, band, task), lane)
end

-- Of a lane that is closed, by its task and name, and where it is to be opened.
function lib.open_lane(name, places)
  local task, lane = string.match(name, '^([^' .. lib.OF .. ']*)' .. lib.OF .. '(.*)$')
  local at = 1
  while at <= #places do
    local band, length = lib.sub(places, at, at), lib.parsed('>I2', places, at + 1)
    local queue = lib.sub(places, at + 3, at + 2 + length)
    if lib.call('EXISTS', lib.lane_line(queue, band, task, lane)) == 1 then
      lib.call('ZADD', lib.open_key(queue, band, task), 0, lane)
    end
    at = at + 3 + length
  end
  lib.call('HDEL', lib.CLOSED, name)
  lib.call('ZREM', lib.AGAIN, name)
end

-- Opens those of the lanes of these names that are closed.
function lib.open_lanes(names)
  for number, places in ipairs(lib.fetched(lib.CLOSED, names)) do
    if places then lib.open_lane(names[number], places) end
  end
end

-- Lanes are known by their names while anything waits in them.
function lib.register(key, of)
  local queue, band, task, lane = of[1], of[2], of[3], of[4]
  local tasks, lanes = lib.tasks_key(queue, band), lib.lanes_key(queue, band, task)
  local open = lib.open_key(queue, band, task)
  if lib.call('EXISTS', key) == 1 then
    lib.call('ZADD', tasks, 0, task)
    lib.call('SADD', lib.QUEUES, queue)
    if lib.call('ZADD', lanes, 0, lane) == 0 then return end
    if lib.call('HEXISTS', lib.CLOSED, task .. lib.OF .. lane) == 1 then
      lib.close_lane(queue, band, task, lane)
    else
      lib.call('ZADD', open, 0, lane)
    end
  elseif lib.call('ZREM', lanes, lane) == 1 then
    lib.call('ZREM', open, lane)
    if lib.call('EXISTS', lanes) == 0 then lib.call('ZREM', tasks, task) end
  end
end

-- Queues with ready jobs, and those with finished ones, are known by name until somebody finds them empty.
function lib.note_queue(key)
  local kind, queue = string.match(key, '^([hnlHNLf]):(.*)$', #lib.P + 1)
  if kind then lib.call('SADD', kind == 'f' and lib.FINISHED or lib.QUEUES, queue) end
end

function lib.write_places()
  for key, list in pairs(lib.dropped) do
    lib.remove(key, #list[1], lib.sorted(list))
  end
  for key, list in pairs(lib.added) do
    if lib.unsorted[key] then lib.sorted(list) end
    if lib.add(key, #list[1], lib.concat(list)) then lib.note_queue(key) end
  end
  for key, of in pairs(lib.laned) do lib.register(key, of) end
  lib.added, lib.dropped, lib.laned, lib.unsorted = {}, {}, {}, {}
end

-- What people are told: how many jobs of a queue and task are in a state, and their bytes.
lib.tallies, lib.weights = {}, {}

function lib.tally(state, names, count, size)
  local of = lib.tallies[names]
  if not of then
    of = {}
    lib.tallies[names] = of
  end
  of[state] = (of[state] or 0) + count
  of[state + 8] = (of[state + 8] or 0) + size
end

-- What the finished jobs of a queue take.
function lib.weigh(queue, size) lib.weights[queue] = (lib.weights[queue] or 0) + size end

function lib.write_tallies()
  for names, of in pairs(lib.tallies) do
    for state = lib.SCHEDULED, 5 do
      local field = state .. names
      if of[state] and of[state] ~= 0 then
        if lib.call('HINCRBY', lib.COUNTS, field, of[state]) == 0 then lib.call('HDEL', lib.COUNTS, field) end
      end
      if of[state + 8] and of[state + 8] ~= 0 then
        if lib.call('HINCRBY', lib.SIZES, field, of[state + 8]) == 0 then lib.call('HDEL', lib.SIZES, field) end
      end
    end
  end
  for queue, size in pairs(lib.weights) do
    if size ~= 0 and lib.call('HINCRBY', lib.WEIGHTS, queue, size) == 0 then lib.call('HDEL', lib.WEIGHTS, queue) end
  end
  lib.tallies, lib.weights = {}, {}
end

-- Calls with as many arguments as a list has, a part at a time: Lua's stack is bounded.
function lib.in_parts(command, key, list)
  for from = 1, #list, 2 * lib.MOST do
    lib.call(command, key, unpack(list, from, math.min(#list, from + 2 * lib.MOST - 1)))
  end
end

function lib.fetched(key, ids)
  if #ids > 0 and #ids <= lib.MOST then return lib.call('HMGET', key, unpack(ids)) end
  local found = {}
  for from = 1, #ids, lib.MOST do
    for _, value in ipairs(lib.call('HMGET', key, unpack(ids, from, math.min(#ids, from + lib.MOST - 1)))) do
      found[#found + 1] = value
    end
  end
  return found
end

-- Records as they are with their outcomes.
function lib.records_of(ids)
  local records, outcomes = lib.fetched(lib.JOBS, ids), lib.fetched(lib.ENDS, ids)
  for number = 1, #ids do records[number] = lib.with_outcome(records[number], outcomes[number]) end
  return records
end
