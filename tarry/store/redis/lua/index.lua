-- The keys of a store, and where each job stands: in which line, at which entry. What a script changes is gathered
-- here, and written in few commands.

-- All keys begin with the same hash tag. Hash: id to record.
lib.JOBS = KEYS[1]
-- Hashes: id to the entry of a running job, and to how a job has ended (`record.lua`).
lib.RUN = lib.P .. 'run'
lib.ENDS = lib.P .. 'ends'
-- Lines: all ids; scheduled jobs by due.
lib.IDS = lib.P .. 'ids'
lib.DUE = lib.P .. 'due'
-- By owner. Hash: how many jobs it runs. Sorted set: when its lease is over.
lib.HELD = lib.P .. 'held'
lib.LEASES = lib.P .. 'leases'
-- Hash: task and key to the id of the job that holds the key.
lib.KEYED = lib.P .. 'keys'
-- Sets: queues with ready jobs, with finished jobs, and those that are paused.
lib.QUEUES = lib.P .. 'queues'
lib.FINISHED = lib.P .. 'finished'
lib.PAUSED = lib.P .. 'paused'
-- Hashes: by state, queue and task how many jobs there are, and their bytes; by queue the bytes of finished jobs.
lib.COUNTS = lib.P .. 'counts'
lib.SIZES = lib.P .. 'sizes'
lib.WEIGHTS = lib.P .. 'weights'
-- Hashes: a limit's numbers and its level, by its name.
lib.LIMITS = lib.P .. 'limits'
lib.LEVELS = lib.P .. 'levels'
-- Hash: by `turn_name`, the lane of a task that was served last in a queue and band, or more (`read_turn`).
lib.TURNS = lib.P .. 'turns'
-- Lanes that are closed: see `close_lane`.
lib.CLOSED = lib.P .. 'closed'
lib.REOPEN_AT = lib.P .. 'again'
-- Set: tasks with jobs that came before the task was limited, and have no lane yet.
lib.MIGRATING = lib.P .. 'laying'
-- Stands between a task and a lane.
lib.SEPARATOR = '\31'
-- At most so many jobs at a time: Lua's stack is bounded.
lib.BATCH = 1000

function lib.band_of(claim_order)
  if claim_order == '' then return 'n' end
  return lib.byte(claim_order) < 128 and 'h' or 'l'
end

-- Bytes of an entry by the band: [claim_order 6], due 8, id 16. In lanes one byte more says whether the job is late: a
-- lane is one line, in which no job overtakes another for that. Jobs without a lane have two lines, that of late ones
-- with a capital letter: however many these are, they are not in the way of what is on time.
lib.WIDTHS = {h = 30, n = 24, l = 30}
function lib.open_line(queue, band, late)
  return lib.P .. (late and string.upper(band) or band) .. ':' .. queue
end
function lib.tasks_key(queue, band) return lib.P .. 't' .. band .. ':' .. queue end
function lib.lanes_key(queue, band, task) return lib.P .. 'w' .. band .. #queue .. ':' .. queue .. ':' .. task end
function lib.open_lanes_key(queue, band, task) return lib.P .. 'o' .. band .. #queue .. ':' .. queue .. ':' .. task end
function lib.lane_line(queue, band, task, lane)
  return lib.P .. 'x' .. band .. #queue .. ':' .. queue .. ':' .. #task .. ':' .. task .. ':' .. lane
end
function lib.finished_line(queue) return lib.P .. 'f:' .. queue end

-- Line: the ids of the jobs that have this label.
function lib.label_line(name, value) return lib.P .. 'label:' .. name .. '=' .. value end

-- What is to be written: entries to be added and removed, by line; lanes to be registered, by line; lines whose new
-- entries are not in order.
lib.line_adds, lib.line_removals, lib.touched_lanes, lib.unsorted = {}, {}, {}, {}

-- The list of that key, a new one if there is none.
function lib.get_list(lists, key)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  return list
end

-- The line and the entry of a job that does not run; nil for a blocked one, which is in no line.
function lib.line_and_entry(id, record, tail)
  local state, due = lib.byte(record, 1), lib.due_of(record)
  if state == lib.SCHEDULED then return lib.DUE, due .. id end
  if state == lib.BLOCKED then return nil end
  if state ~= lib.READY then return lib.finished_line(tail.queue), lib.keep_until_of(record) .. id end
  local claim_order, late = lib.claim_order_of(record), lib.is_late(record)
  local band, entry = lib.band_of(claim_order), claim_order .. due .. id
  if not tail.lane then return lib.open_line(tail.queue, band, late), entry end
  local key = lib.lane_line(tail.queue, band, tail.task, tail.lane)
  lib.touched_lanes[key] = lib.touched_lanes[key] or {lib.lane_group(tail.queue, band, tail.task), tail.lane}
  return key, entry .. (late and '\1' or '\0')
end

-- The lanes of a task in a queue and band; prefix: what the names of their lines begin with.
lib.lane_groups = {}
function lib.lane_group(queue, band, task)
  local groups = lib.get_list(lib.lane_groups, band .. queue)
  local group = groups[task]
  if not group then
    group = {
      queue = queue, band = band, task = task, prefix = lib.lane_line(queue, band, task, ''), added = {}, by = false,
      turn_name = false,
    }
    groups[task] = group
  end
  return group
end

function lib.add_to_line(key, entry)
  if not key then return end
  local list = lib.get_list(lib.line_adds, key)
  list[#list + 1] = entry
  lib.unsorted[key] = true
end

function lib.remove_from_line(key, entry)
  if not key then return end
  local list = lib.get_list(lib.line_removals, key)
  list[#list + 1] = entry
end

-- Sorts in place, if need be.
function lib.sort(list)
  if #list > 1 and not lib.is_sorted(list) then table.sort(list, lib.less) end
  return list
end

function lib.is_sorted(list)
  local digits = #list[1] < 12 and '>I4I4' or '>I6I6'
  local a1, a2 = lib.parse(digits, list[1])
  for number = 2, #list do
    local b1, b2 = lib.parse(digits, list[number])
    if b1 < a1 or b1 == a1 and (b2 < a2 or b2 == a2 and lib.less(list[number], list[number - 1])) then return false end
    a1, a2 = b1, b2
  end
  return true
end

-- Queues with ready jobs, and those with finished ones, are known by name until a script finds them empty.
function lib.register_queue(key)
  local kind, queue = string.match(key, '^([hnlHNLf]):(.*)$', #lib.P + 1)
  if kind then lib.call('SADD', kind == 'f' and lib.FINISHED or lib.QUEUES, queue) end
end

function lib.write_lines()
  for key, list in pairs(lib.line_removals) do
    lib.remove(key, #list[1], lib.sort(list))
  end
  for key, list in pairs(lib.line_adds) do
    if lib.unsorted[key] then lib.sort(list) end
    if lib.add(key, #list[1], list[2] and lib.concat(list) or list[1]) then lib.register_queue(key) end
  end
  local groups = {}
  for key, of in pairs(lib.touched_lanes) do
    local group, lane = of[1], of[2]
    if lib.line_adds[key] then
      group.added[#group.added + 1] = lane
      groups[group] = true
    else
      lib.register_lane(key, group, lane)
    end
  end
  for group in pairs(groups) do lib.register_added(group) end
  lib.line_adds, lib.line_removals, lib.touched_lanes, lib.unsorted = {}, {}, {}, {}
end

-- Calls `act` with the line of each label that the headers of a job have (`model/job.py`), and its id. Mostly there are
-- no headers.
function lib.each_label(act, tail, id)
  local text = tail.headers or ''
  if text == '' or not string.find(text, '"tarry-label:', 1, true) then return end
  local is_json, headers = pcall(cjson.decode, text)
  if not is_json or type(headers) ~= 'table' then return end
  for key, value in pairs(headers) do
    local name = type(key) == 'string' and string.match(key, '^tarry%-label:([^=:]+)$')
    if name and #name <= 64 and type(value) == 'string' and #value <= 256 then act(lib.label_line(name, value), id) end
  end
end

-- Whether a job has the label, a text such as `customer=7`.
function lib.has_label(tail, label)
  local line, found = lib.P .. 'label:' .. label, false
  lib.each_label(function(key) found = found or key == line end, tail)
  return found
end

-- By names and state, how many jobs came (state + 8: how many bytes); by queue, how many bytes of finished jobs.
lib.tallies, lib.weights = {}, {}
-- The states that are counted: 6 is none.
lib.COUNTED = {0, 1, 2, 3, 4, 5, 7}

function lib.tally(state, names, count, size)
  local of = lib.tallies[names]
  if not of then
    of = {}
    lib.tallies[names] = of
  end
  of[state] = (of[state] or 0) + count
  of[state + 8] = (of[state + 8] or 0) + size
end

-- Counts a job in another state.
function lib.move_tally(from, to, tail, note)
  local size = lib.tail_size(tail, note)
  lib.tally(from, tail.names, -1, -size)
  lib.tally(to, tail.names, 1, size)
end

-- keep_until: of the job. The nodes of a flow go with the flow, and do not count.
function lib.add_weight(queue, keep_until, size)
  if keep_until ~= lib.FOREVER then lib.weights[queue] = (lib.weights[queue] or 0) + size end
end

function lib.write_tallies()
  for names, of in pairs(lib.tallies) do
    for _, state in ipairs(lib.COUNTED) do
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

-- Calls a command with the arguments of a list, a part of them at a time.
function lib.call_in_batches(command, key, list)
  for from = 1, #list, 2 * lib.BATCH do
    lib.call(command, key, unpack(list, from, math.min(#list, from + 2 * lib.BATCH - 1)))
  end
end

-- A hash of up to 512 short fields is a list to Redis, through which each look goes from its beginning: of hundreds of
-- jobs that took as long as all else. A field that is too long for a list makes it a table for good.
lib.TOO_LONG, lib.MANY = string.rep('-', 65), 32

-- Sets fields of a hash that has few or hundreds of them.
function lib.set_many(key, list)
  if #list < lib.MANY then return lib.call_in_batches('HSET', key, list) end
  list[#list + 1], list[#list + 2] = lib.TOO_LONG, ''
  lib.call_in_batches('HSET', key, list)
  lib.call('HDEL', key, lib.TOO_LONG)
end

-- The values of a hash, false for those that are not there.
function lib.fetch(key, ids)
  if #ids > 0 and #ids <= lib.BATCH then return lib.call('HMGET', key, unpack(ids)) end
  local found = {}
  for from = 1, #ids, lib.BATCH do
    for _, value in ipairs(lib.call('HMGET', key, unpack(ids, from, math.min(#ids, from + lib.BATCH - 1)))) do
      found[#found + 1] = value
    end
  end
  return found
end

-- Records, each with the outcome that `ends` has for it.
function lib.fetch_records(ids)
  local records, outcomes = lib.fetch(lib.JOBS, ids), lib.fetch(lib.ENDS, ids)
  for number = 1, #ids do records[number] = lib.merge_outcome(records[number], outcomes[number]) end
  return records
end

function lib.key_field(task, key) return lib.pack('>I2', #task) .. task .. key end

-- The id of another job that holds the key at that time. A job whose time with the key is over loses it here.
function lib.key_holder(field, id, now)
  local other = lib.call('HGET', lib.KEYED, field)
  if not other or other == id then return nil end
  local record = lib.call('HGET', lib.JOBS, other)
  if record then
    local tail = lib.tail_of(record)
    if lib.parse('>I8', tail.key_held_until) > now then return other end
    tail.key_held_until = lib.NO_TIME
    lib.call('HSET', lib.JOBS, other, lib.replace_tail(record, tail))
  end
  lib.call('HDEL', lib.KEYED, field)
  return nil
end

function lib.release_key(tail, id)
  if not tail.key or tail.key_held_until == lib.NO_TIME then return end
  local field = lib.key_field(tail.task, tail.key)
  if lib.call('HGET', lib.KEYED, field) == id then lib.call('HDEL', lib.KEYED, field) end
end

function lib.hold_key(tail, id)
  if not tail.key or tail.key_held_until == lib.NO_TIME then return end
  lib.call('HSET', lib.KEYED, lib.key_field(tail.task, tail.key), id)
end
