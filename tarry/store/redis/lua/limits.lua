-- Limits and how far they are used: `tarry.model.limit` has the arithmetic, which is done here in the same way.
lib.levels, lib.touched, lib.lowered, lib.again = {}, {}, {}, nil

local function read_limit(limits, name)
  local text, limit = lib.call('HGET', lib.LIMITS, name), false
  if text then
    local most, count, period, at_once, spacing = string.match(text, '^(%S+) (%S+) (%S+) (%S+) (%S+)$')
    limit = {
      most = tonumber(most), count = tonumber(count), period = tonumber(period), at_once = tonumber(at_once),
      spacing = tonumber(spacing),
    }
  end
  limits[name] = limit
  return limit
end

-- By name, false for what has none; nil if there are none at all. Each is read when it is asked for: of thousands a
-- claim needs a few.
function lib.read_limits()
  if lib.call('EXISTS', lib.LIMITS) == 0 then return nil end
  return setmetatable({}, {__index = read_limit})
end

function lib.limit_of(limits, name) return limits[string.match(name, '^[^' .. lib.OF .. ']*')] end

function lib.level_of(name)
  local level = lib.levels[name]
  if not level then
    local running, next_ = string.match(lib.call('HGET', lib.LEVELS, name) or '0 0', '^(%S+) (%S+)$')
    level = {running = tonumber(running), next = tonumber(next_)}
    lib.levels[name] = level
  end
  return level
end

-- When the next start would be on time; now, if that is further ahead than it can be: the clock was set back.
local function following(level, limit, now)
  return level.next <= now + limit.at_once * limit.spacing + limit.period and level.next or now
end

-- How many of at most so many may start; where there is no room for a rate's sake, also when there will be, which
-- `again` has too.
function lib.room(limits, name, most, now)
  local limit = limits and lib.limit_of(limits, name)
  if not limit then return most end
  local level = lib.level_of(name)
  local left = limit.most and math.max(0, limit.most - level.running) or most
  if limit.count > 0 then
    local following_ = following(level, limit, now)
    local ahead = math.max(following_ - now, 0)
    left = math.min(left, math.max(0, limit.at_once - math.ceil(ahead / limit.spacing)))
    local at = following_ - (limit.at_once - 1) * limit.spacing
    local full = limit.most and level.running >= limit.most
    if left == 0 and not full and at > now then
      lib.again = math.min(lib.again or at, at)
      return 0, at
    end
  end
  return math.min(left, most)
end

function lib.level_names(queue, task, lane)
  if not lane then return {'queue:' .. queue} end
  return {'queue:' .. queue, 'task:' .. task, 'each:' .. task .. lib.OF .. lane}
end

function lib.started(limits, queue, task, lane, now)
  for _, name in ipairs(lib.level_names(queue, task, lane)) do
    local limit = lib.limit_of(limits, name)
    if limit then
      local level = lib.level_of(name)
      level.running = level.running + 1
      if limit.count > 0 then level.next = math.max(following(level, limit, now), now) + limit.spacing end
      lib.touched[name] = true
    end
  end
end

function lib.ended(limits, queue, task, lane)
  for _, name in ipairs(lib.level_names(queue, task, lane)) do
    if lib.limit_of(limits, name) then
      local level = lib.level_of(name)
      level.running = math.max(0, level.running - 1)
      lib.touched[name], lib.lowered[name] = true, true
    end
  end
end

-- Lanes of which an attempt has ended, or whose level was wrong.
local function open_lowered()
  local names = {}
  for name in pairs(lib.lowered) do
    if lib.sub(name, 1, 5) == 'each:' then names[#names + 1] = lib.sub(name, 6) end
  end
  lib.open_lanes(names)
  lib.lowered = {}
end

-- A key that is as good as never used leaves nothing behind.
function lib.write_levels(now)
  for name in pairs(lib.touched) do
    local level = lib.levels[name]
    if level.running == 0 and level.next <= now and lib.sub(name, 1, 5) == 'each:' then
      lib.call('HDEL', lib.LEVELS, name)
    else
      lib.call('HSET', lib.LEVELS, name, string.format('%d %.0f', level.running, level.next))
    end
  end
  lib.touched = {}
  open_lowered()
end

-- The lane of a new job: what it says; if it says none and its task is limited all the same, that of the task.
function lib.lane_for(limits, task, lane)
  if lane or not limits then return lane end
  return (limits['task:' .. task] or limits['each:' .. task]) and '' or nil
end
