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
  if #lib.limited_level_names(limits, job.queue, job.task, job.lane) == 0 then return end
  local expires = tonumber(lib.call('ZSCORE', lib.LEASES, change.owner) or now)
  local parts = {string.format('%.0f', expires), job.queue, job.task, job.lane}
  local name = lib.place_name(change, id)
  lib.call('HSET', lib.CELLS, name, lib.concat(parts, lib.SEPARATOR))
  lib.call('ZADD', lib.CELL_NAMES, 0, name)
end

-- An outcome came of an attempt whose job others have ended.
function lib.free_place(limits, change, id)
  local name = lib.place_name(change, id)
  local value = lib.call('HGET', lib.CELLS, name)
  if not value then return end
  lib.call('HDEL', lib.CELLS, name)
  lib.call('ZREM', lib.CELL_NAMES, name)
  local queue, task, lane = lib.parse_place(value)
  if queue then lib.lower_levels(limits, queue, task, lane) end
end

-- Calls `count` with queue, task and lane of each.
function lib.each_place(count)
  local names = lib.call('ZRANGEBYLEX', lib.CELL_NAMES, '[' .. lib.PLACES, '(' .. lib.AFTER_PLACES)
  for _, value in ipairs(lib.fetch(lib.CELLS, names)) do
    local queue, task, lane = lib.parse_place(value or '')
    if queue then count(queue, task, lane) end
  end
end
