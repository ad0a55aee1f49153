-- Levels: how far each limit is used, which is how many run (`running`), and when the next start would be on time
-- (`next`). `tarry.model.limit` has the arithmetic; it is the same here.

-- Levels that were read, by name; those that have changed; those that sank; and when to claim again, for a rate's sake.
lib.levels, lib.touched, lib.lowered, lib.retry_at = {}, {}, {}, nil
-- What their texts say: most of thousands are alike.
lib.level_numbers = {}
-- What the names of levels of lanes begin with, `each:`, as a byte.
lib.OF_LANE = string.byte('e')

function lib.parse_level(name, text)
  local numbers = lib.level_numbers[text]
  if not numbers then
    local running, next_ = string.match(text or '0 0', '^(%S+) (%S+)$')
    numbers = {tonumber(running), tonumber(next_)}
    lib.level_numbers[text] = numbers
  end
  local level = {
    name = name, running = numbers[1], next = numbers[2], limit = false, touched = false, lowered = false,
    is_of_lane = lib.byte(name) == lib.OF_LANE,
  }
  lib.levels[name] = level
  return level
end

function lib.level_of(name) return lib.levels[name] or lib.parse_level(name, lib.call('HGET', lib.LEVELS, name)) end

-- The level of that name, with the limit that holds for it; nil if it has none.
function lib.limited_level(limits, name)
  local limit = lib.limit_of(limits, name)
  if not limit then return nil end
  local level = lib.level_of(name)
  level.limit = limit
  return level
end

-- By queue and task as names, what `counted_by` has found: for jobs with a lane, and for those without one.
lib.counted_with_lane, lib.counted_without = {}, {}

-- What counts the jobs of a queue and task: the levels with limits that all of them count for (`shared`); and where
-- each lane has a level, the limit for each key, and what the level's name begins with (`prefix`). lanes: levels by
-- lane. is_rated: whether any of these limits may be a rate.
function lib.counted_by(limits, names, has_lane)
  local known = has_lane and lib.counted_with_lane or lib.counted_without
  local by = known[names]
  if by then return by end
  local queue, task = lib.split_names(names)
  by = {shared = {lib.limited_level(limits, 'queue:' .. queue)}, lanes = {}, is_rated = false}
  if has_lane then
    by.shared[#by.shared + 1] = lib.limited_level(limits, 'task:' .. task)
    by.each = limits['each:' .. task]
    by.prefix = by.each and 'each:' .. task .. lib.SEPARATOR
    by.is_rated = by.each and (by.each.has_key_limits or by.each.count > 0)
  end
  for _, level in ipairs(by.shared) do by.is_rated = by.is_rated or level.limit.count > 0 end
  known[names] = by
  return by
end

-- Reads the levels of these lanes at once. lanes: the keys of a table.
function lib.read_lane_levels(by, lanes)
  local missing, names, count = {}, {}, 0
  for lane in pairs(lanes) do
    if not by.lanes[lane] then
      count = count + 1
      missing[count], names[count] = lane, by.prefix .. lane
    end
  end
  for number, text in ipairs(lib.fetch(lib.LEVELS, names)) do
    local name = names[number]
    lib.keep_lane_level(by, missing[number], lib.levels[name] or lib.parse_level(name, text))
  end
end

function lib.keep_lane_level(by, lane, level)
  level.limit = by.each.has_key_limits and lib.limit_of_key(level.name, by.each) or by.each
  by.lanes[lane] = level
  return level
end

-- The level of a lane; nil if it has none.
function lib.lane_level(by, lane)
  if not by.prefix then return nil end
  return by.lanes[lane] or lib.keep_lane_level(by, lane, lib.level_of(by.prefix .. lane))
end

-- The levels with a limit that a job counts for. One without a lane counts for its queue alone.
function lib.levels_of(limits, queue, task, lane)
  local by = lib.counted_by(limits, lib.join_names(queue, task), lane ~= nil)
  local levels = {unpack(by.shared)}
  levels[#levels + 1] = lib.lane_level(by, lane)
  return levels
end

-- How far ahead of now a level may be: further for what jobs have used than for what they were charged.
lib.LONGEST_DEBT = 10
function lib.furthest(limit) return limit.at_once * limit.spacing + lib.LONGEST_DEBT * limit.period end

-- When the next start would be on time. A time that is too far ahead means that the clock was set back: then now.
function lib.next_start(level, now) return level.next <= now + lib.furthest(level.limit) and level.next or now end

-- Whether it is a part of a limit that has ended.
function lib.is_over(limit, now) return (limit.ends or 0) > 0 and limit.ends <= now end

-- How many starts a rate allows now.
function lib.starts_of(level, now)
  local ahead = math.max(lib.next_start(level, now) - now, 0)
  return math.max(0, level.limit.at_once - math.ceil(ahead / level.limit.spacing))
end

-- How many of at most so many may start under a level; where a rate leaves no room, also when there will be some.
-- `retry_at` has the earliest such time.
function lib.room(level, most, now)
  local limit, left = level.limit, most
  if limit.ends and lib.is_over(limit, now) then return 0 end
  if limit.most then left = math.max(0, limit.most - level.running) end
  if limit.count > 0 then
    local full = left == 0
    left = math.min(left, lib.starts_of(level, now))
    local at = lib.next_start(level, now) - (limit.at_once - 1) * limit.spacing
    if left == 0 and not full and at > now then
      lib.retry_at = math.min(lib.retry_at or at, at)
      return 0, at
    end
  end
  return math.min(left, most)
end

-- How many of at most so many may start under the limit of that name.
function lib.room_under(limits, name, most, now)
  local level = limits and lib.limited_level(limits, name)
  return level and lib.room(level, most, now) or most
end

-- The level is to be written.
function lib.touch(level)
  if level.touched then return end
  level.touched = true
  lib.touched[#lib.touched + 1] = level
end

-- So many jobs that count for a level start; a rate counts each as `cost` starts (1).
function lib.raise_level(level, now, count, cost)
  level.running = level.running + count
  if level.limit.count > 0 then
    level.next = math.max(lib.next_start(level, now), now) + count * (cost or 1) * level.limit.spacing
  end
  lib.touch(level)
end

function lib.raise_levels(levels, now, count, cost)
  for _, level in ipairs(levels) do lib.raise_level(level, now, count, cost) end
end

-- So many attempts that count for a level have ended.
function lib.lower_level(level, count)
  level.running = math.max(0, level.running - count)
  lib.sink_level(level)
end

function lib.lower_levels(levels, count)
  for _, level in ipairs(levels) do lib.lower_level(level, count) end
end

-- If it is that of a lane, the lane is to be opened.
function lib.sink_level(level)
  if not level.lowered then
    level.lowered = true
    lib.lowered[#lib.lowered + 1] = level
  end
  lib.touch(level)
end

-- The rates of these levels count so many starts more; below 0: fewer.
function lib.correct_levels(levels, now, by)
  for _, level in ipairs(levels) do
    local limit = level.limit
    if limit.count > 0 then
      local on_time = lib.next_start(level, now)
      local following = (by > 0 and math.max(on_time, now) or on_time) + by * limit.spacing
      level.next = math.max(0, math.min(following, now + lib.furthest(limit)))
      lib.touch(level)
    end
  end
end

-- Lanes of which an attempt has ended, or whose level was wrong.
function lib.open_lowered_lanes()
  local is_any_closed, names = #lib.lowered > 0 and lib.call('EXISTS', lib.CLOSED) == 1, {}
  for _, level in ipairs(lib.lowered) do
    level.lowered = false
    if is_any_closed and level.is_of_lane then names[#names + 1] = lib.sub(level.name, 6) end
  end
  lib.lowered = {}
  lib.open_lanes(names)
end

-- The text of a level without a rate, by how many run.
lib.RUNNING_TEXTS = {}
function lib.level_text(level)
  if level.next ~= 0 then return string.format('%d %.0f', level.running, level.next) end
  local text = lib.RUNNING_TEXTS[level.running] or string.format('%d 0', level.running)
  if level.running < 1000 then lib.RUNNING_TEXTS[level.running] = text end
  return text
end

-- The level of a lane that tells nothing any more is removed.
function lib.write_levels(now)
  local written, gone = {}, {}
  for _, level in ipairs(lib.touched) do
    level.touched = false
    if level.running == 0 and level.next <= now and level.is_of_lane then
      gone[#gone + 1] = level.name
    else
      local count = #written
      written[count + 1], written[count + 2] = level.name, lib.level_text(level)
    end
  end
  lib.set_many(lib.LEVELS, written)
  lib.call_in_batches('HDEL', lib.LEVELS, gone)
  lib.touched = {}
  lib.open_lowered_lanes()
end
