-- The places under limits that an attempt keeps although its job has ended: named values.
-- `tarry.store.rules.kept_places` says what they are for, and reads and writes them, too.

lib.PLACES, lib.AFTER_PLACES = 'place:', 'place;'

function lib.place_name(change, id)
  local hex = string.gsub(id, '.', function(byte) return string.format('%02x', lib.byte(byte)) end)
  return lib.PLACES .. hex .. ':' .. string.format('%d', lib.parse('>I4', change.epoch)) .. ':' .. change.owner
end

-- Queue, task and, if there is one, lane of a value.
function lib.parse_place(value)
  local queue, task, rest = string.match(value, '^%d+\31([^\31]*)\31([^\31]*)(.*)$')
  return queue, task, rest and rest ~= '' and lib.sub(rest, 2) or nil
end

-- The attempt goes on: what levels count stays.
function lib.keep_place(limits, change, id, job, now)
  if #lib.levels_of(limits, job.queue, job.task, job.lane) == 0 then return end
  local names = lib.concat({job.queue, job.task, job.lane}, lib.SEPARATOR)
  lib.keep_followed_place(lib.place_name(change, id), change.owner, names, now)
end

-- As `keep_place`, for an attempt that a newer job is to follow: also if no limit counts it. names: queue, task and, if
-- there is one, lane.
function lib.keep_followed_place(name, owner, names, now)
  local expires = tonumber(lib.call('ZSCORE', lib.LEASES, owner) or now)
  lib.set_cell(name, string.format('%.0f', expires) .. lib.SEPARATOR .. names)
end

-- An outcome came of an attempt whose job others have ended.
function lib.free_place(limits, change, id, now)
  local name = lib.place_name(change, id)
  local value = lib.call('HGET', lib.CELLS, name)
  if not value then return end
  lib.set_cell(name, nil)
  local queue, task, lane = lib.parse_place(value)
  if limits and queue then lib.lower_levels_of(limits, change, {queue = queue, task = task, lane = lane}, now) end
end

-- Calls `count` with queue, task and lane of each.
function lib.each_place(count)
  local names = lib.call('ZRANGEBYLEX', lib.CELL_NAMES, '[' .. lib.PLACES, '(' .. lib.AFTER_PLACES)
  for _, value in ipairs(lib.fetch(lib.CELLS, names)) do
    local queue, task, lane = lib.parse_place(value or '')
    if queue then count(queue, task, lane) end
  end
end

-- take_place: takes a place outside of jobs, as `tarry.store.rules.lanes` says.
-- Keys: limits, levels, cells, cellnames.
-- Arguments: the name, the value, the cost, now.
-- Answer: whether it is taken, when the rates allow it (-1: an attempt must end before), the highest cost that they
-- ever allow (-1: any), whether any limit counts it.
function lib.take_place()
  local name, value, cost, now = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
  if lib.call('HEXISTS', lib.CELLS, name) == 1 then return {1, -1, -1, 1} end
  local queue, task, lane = lib.parse_place(value)
  local limits = lib.read_limits()
  local levels = limits and lib.levels_of(limits, queue, task, lane) or {}
  local again, most = lib.place_room(levels, cost, now)
  if #levels == 0 or again then return {0, again or -1, most, #levels == 0 and 0 or 1} end
  lib.raise_levels(levels, now, 1, cost)
  lib.write_levels(now)
  lib.set_cell(name, value)
  return {1, -1, most, 1}
end

-- When a place of that cost is free under all these levels, nil for now, -1 if an attempt must end before; and the
-- highest cost that their rates ever allow, -1 for any.
function lib.place_room(levels, cost, now)
  local again, most, full = nil, -1, false
  for _, level in ipairs(levels) do
    local limit = level.limit
    full = full or lib.is_over(limit, now) or limit.most and level.running >= limit.most
    if limit.count > 0 then
      most = most < 0 and limit.at_once or math.min(most, limit.at_once)
      if lib.starts_of(level, now) < cost then
        again = math.max(again or 0, lib.next_start(level, now) - (limit.at_once - cost) * limit.spacing)
      end
    end
  end
  return full and -1 or again, most
end
