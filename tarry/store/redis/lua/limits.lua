-- Limits and how far each is used, its level. `tarry.model.limit` has the arithmetic; it is the same here.

-- Levels that were read, those that have changed, those that sank; and when to claim again, for a rate's sake.
lib.levels, lib.touched, lib.lowered, lib.retry_at = {}, {}, {}, nil

function lib.limit_from(most, count, period, at_once, spacing)
  return {
    most = tonumber(most), count = tonumber(count), period = tonumber(period), at_once = tonumber(at_once),
    spacing = tonumber(spacing),
  }
end

function lib.read_limit(limits, name)
  local text, limit = lib.call('HGET', lib.LIMITS, name), false
  if text then
    local most, count, period, at_once, spacing, rest = string.match(text, '^(%S+) (%S+) (%S+) (%S+) (%S+)(.*)$')
    limit = lib.limit_from(most, count, period, at_once, spacing)
    if rest ~= '' then
      limit.weight = tonumber(string.match(rest, ' d(%d+)') or 1)
      limit.has_key_limits = string.find(rest, lib.HAS_KEY_LIMITS, 1, true) ~= nil
      limit.has_weights = string.find(rest, lib.HAS_WEIGHTS, 1, true) ~= nil
    end
  end
  limits[name] = limit
  return limit
end

-- Limits by name, false for a name without one; nil if there are none at all. Each is read when it is used: a claim
-- needs a few of thousands.
function lib.read_limits()
  if lib.call('EXISTS', lib.LIMITS) == 0 then return nil end
  return setmetatable({}, {__index = lib.read_limit})
end

-- The limit that holds for a level: that of a single key, if it has one, is a named value, which
-- `tarry.store.rules.key_limits` reads and writes, too.
function lib.limit_of(limits, name)
  local limit = limits[lib.limit_name(name)]
  return limit and limit.has_key_limits and lib.limit_of_key(name, limit) or limit
end

lib.KEY_LIMITS = 'key-limit:'
-- By the names of levels, what was read.
lib.key_limits = {}

function lib.limit_of_key(level, each)
  local limit = lib.key_limits[level]
  if not limit then
    limit = lib.read_key_limit(lib.call('HGET', lib.CELLS, lib.KEY_LIMITS .. level), each)
    lib.key_limits[level] = limit
  end
  return limit
end

-- The numbers of a key over those for each key, where it has none itself.
function lib.read_key_limit(text, each)
  local most, count, period, at_once, spacing, paused =
    string.match(text or '', '^([-%d]+) ([-%d]+) (%d+) (%d+) (%d+) ([01])[-%d ]*$')
  if not most then return each end
  if count == '-' then count, period, at_once, spacing = each.count, each.period, each.at_once, each.spacing end
  if paused == '1' then most = 0 elseif most == '-' then most = each.most end
  return lib.limit_from(most, count, period, at_once, spacing)
end

function lib.has_key_limits(task)
  local first = lib.KEY_LIMITS .. 'each:' .. task
  local from, to = '[' .. first .. lib.SEPARATOR, '(' .. first .. ' '
  return #lib.call('ZRANGEBYLEX', lib.CELL_NAMES, from, to, 'LIMIT', 0, 1) > 0
end

function lib.level_of(name)
  local level = lib.levels[name]
  if not level then
    local running, next_ = string.match(lib.call('HGET', lib.LEVELS, name) or '0 0', '^(%S+) (%S+)$')
    level = {running = tonumber(running), next = tonumber(next_)}
    lib.levels[name] = level
  end
  return level
end

-- How far ahead of now a level may be: further for what jobs have used than for what they were charged.
lib.LONGEST_DEBT = 10
function lib.furthest(limit) return limit.at_once * limit.spacing + lib.LONGEST_DEBT * limit.period end

-- When the next start would be on time. A time that is too far ahead means that the clock was set back: then now.
function lib.next_start(level, limit, now)
  return level.next <= now + lib.furthest(limit) and level.next or now
end

-- How many starts a rate allows now.
function lib.starts_of(limit, level, now)
  local ahead = math.max(lib.next_start(level, limit, now) - now, 0)
  return math.max(0, limit.at_once - math.ceil(ahead / limit.spacing))
end

-- How many of at most so many may start; where a rate leaves no room, also when there will be some. `retry_at` has the
-- earliest such time.
function lib.room(limits, name, most, now)
  local limit = limits and lib.limit_of(limits, name)
  if not limit then return most end
  local level = lib.level_of(name)
  local left = limit.most and math.max(0, limit.most - level.running) or most
  if limit.count > 0 then
    local next_start = lib.next_start(level, limit, now)
    left = math.min(left, lib.starts_of(limit, level, now))
    local at = next_start - (limit.at_once - 1) * limit.spacing
    local full = limit.most and level.running >= limit.most
    if left == 0 and not full and at > now then
      lib.retry_at = math.min(lib.retry_at or at, at)
      return 0, at
    end
  end
  return math.min(left, most)
end

function lib.level_names(queue, task, lane)
  if not lane then return {'queue:' .. queue} end
  return {'queue:' .. queue, 'task:' .. task, 'each:' .. task .. lib.SEPARATOR .. lane}
end

-- By queue, task and lane of jobs, the names of the levels that they count for and that have a limit.
lib.limited_names = {}

function lib.limited_level_names(limits, queue, task, lane)
  local key = lane and queue .. lib.SEPARATOR .. task .. lib.SEPARATOR .. lane or queue
  local names = lib.limited_names[key]
  if not names then
    names = {}
    for _, name in ipairs(lib.level_names(queue, task, lane)) do
      if lib.limit_of(limits, name) then names[#names + 1] = name end
    end
    lib.limited_names[key] = names
  end
  return names
end

-- So many jobs of that queue, task and lane start; a rate counts each as `cost` starts (1).
function lib.raise_levels(limits, queue, task, lane, now, count, cost)
  for _, name in ipairs(lib.limited_level_names(limits, queue, task, lane)) do
    local limit, level = lib.limit_of(limits, name), lib.level_of(name)
    level.running = level.running + count
    if limit.count > 0 then
      level.next = math.max(lib.next_start(level, limit, now), now) + count * (cost or 1) * limit.spacing
    end
    lib.touched[name] = true
  end
end

-- So many attempts of jobs of that queue, task and lane have ended.
function lib.lower_levels(limits, queue, task, lane, count)
  for _, name in ipairs(lib.limited_level_names(limits, queue, task, lane)) do
    local level = lib.level_of(name)
    level.running = math.max(0, level.running - count)
    lib.touched[name], lib.lowered[name] = true, true
  end
end

-- The rates of a job of that queue, task and lane count so many starts more; below 0: fewer.
function lib.correct_levels(limits, queue, task, lane, now, by)
  for _, name in ipairs(lib.limited_level_names(limits, queue, task, lane)) do
    local limit, level = lib.limit_of(limits, name), lib.level_of(name)
    if limit.count > 0 then
      local on_time = lib.next_start(level, limit, now)
      local following = (by > 0 and math.max(on_time, now) or on_time) + by * limit.spacing
      level.next = math.max(0, math.min(following, now + lib.furthest(limit)))
      lib.touched[name] = true
    end
  end
end

-- Lanes of which an attempt has ended, or whose level was wrong.
function lib.open_lowered_lanes()
  local names = {}
  for name in pairs(lib.lowered) do
    if lib.sub(name, 1, 5) == 'each:' then names[#names + 1] = lib.sub(name, 6) end
  end
  lib.open_lanes(names)
  lib.lowered = {}
end

-- The level of a lane that tells nothing any more is removed.
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
  lib.open_lowered_lanes()
end

-- The lane of a new job: what it says; if it says none and its task is limited all the same, that of the task.
function lib.lane_for(limits, task, lane)
  if lane or not limits then return lane end
  return (limits['task:' .. task] or limits['each:' .. task]) and '' or nil
end

-- set_limit: sets a limit, or lifts it, and counts what runs under it.
-- Keys: limits, levels, run, jobs, closed, again, laying, cells, cellnames, and lanes; wakes for `w`.
-- Arguments: the limit's name, its kind and whose it is, and its numbers; no numbers: it is lifted.
-- Answer: lines with jobs that may have no lane: `migrate` has to be called for each of them, in this order.
-- Cost: one read if the limit is there already; else one of all running jobs.
function lib.set_limit() return lib.relimit(ARGV[1], ARGV[2], ARGV[3], ARGV[4]) end

-- Where keys have numbers of their own, a limit without bounds is left.
lib.UNBOUNDED, lib.HAS_KEY_LIMITS, lib.HAS_WEIGHTS = '- 0 0 1 0', ' k', ' w'

-- limit_key: sets what one key of a task has instead of the limit for each key, or removes it.
-- Keys: as of `set_limit`.
-- Arguments: task and lane; the numbers.
-- Answer: as of `set_limit`.
-- Cost: as of `set_limit`, if the task had no limit for each key, or has none after that; else it opens one lane.
function lib.limit_key()
  local task, lane, numbers = ARGV[1], ARGV[2], ARGV[3]
  local each = 'each:' .. task
  local level = each .. lib.SEPARATOR .. lane
  lib.set_cell(lib.KEY_LIMITS .. level, numbers)
  lib.keep_weight(task, lane, numbers and tonumber(string.match(numbers, '%S+$')))
  local was = lib.call('HGET', lib.LIMITS, each)
  local declared = was and string.gsub(was, lib.HAS_KEY_LIMITS .. '.*$', '')
  if declared == lib.UNBOUNDED then declared = false end
  if was ~= lib.kept_numbers('each', task, declared) then return lib.relimit(each, 'each', task, declared) end
  lib.open_lanes({task .. lib.SEPARATOR .. lane})
  lib.wake('w')
  return lib.left_to_migrate(task)
end

-- The lines that an earlier call, whose answer was lost or that broke off, has left.
function lib.left_to_migrate(task)
  return lib.call('SISMEMBER', lib.MIGRATING, task) == 1 and lib.lines_of_task(task) or {}
end

-- What is kept of these numbers of a limit.
function lib.kept_numbers(kind, task, numbers)
  if kind ~= 'each' or not lib.has_key_limits(task) then return numbers end
  local weights = lib.call('HEXISTS', lib.CELLS, lib.KEY_WEIGHTS .. task) == 1 and lib.HAS_WEIGHTS or ''
  return (numbers or lib.UNBOUNDED) .. lib.HAS_KEY_LIMITS .. weights
end

function lib.relimit(name, kind, which, numbers)
  numbers = lib.kept_numbers(kind, which, numbers)
  lib.open_lanes_of(kind, which)
  if numbers and lib.call('HEXISTS', lib.LIMITS, name) == 1 then
    -- What runs is counted since the limit is there, and jobs have lanes or get them: no need to read all of them.
    lib.call('HSET', lib.LIMITS, name, numbers)
    lib.wake('w')
    return kind == 'queue' and {} or lib.left_to_migrate(which)
  end
  local left = {}
  lib.reset_levels(name, kind, numbers)
  if numbers then
    lib.call('HSET', lib.LIMITS, name, numbers)
    lib.count_running(name, kind, which)
    lib.write_levels(0)
    if kind ~= 'queue' then left = lib.begin_migration(which) end
  else
    lib.call('HDEL', lib.LIMITS, name)
    if lib.call('HEXISTS', lib.LIMITS, 'task:' .. which) + lib.call('HEXISTS', lib.LIMITS, 'each:' .. which) == 0 then
      lib.call('SREM', lib.MIGRATING, which)
    end
  end
  lib.wake('w')
  return left
end

function lib.open_lanes_of(kind, task)
  local names = {}
  for _, closed in ipairs(kind == 'each' and lib.call('HKEYS', lib.CLOSED) or {}) do
    if lib.sub(closed, 1, #task + 1) == task .. lib.SEPARATOR then names[#names + 1] = closed end
  end
  lib.open_lanes(names)
end

-- The name of the limit whose level this is: only those of lanes have levels of other names than their own.
function lib.limit_name(level) return string.match(level, '^[^' .. lib.SEPARATOR .. ']*') end

function lib.reset_levels(name, kind, numbers)
  for _, level in ipairs(kind == 'each' and lib.call('HKEYS', lib.LEVELS) or {name}) do
    local text = lib.limit_name(level) == name and lib.call('HGET', lib.LEVELS, level)
    if text and numbers then
      lib.call('HSET', lib.LEVELS, level, '0 ' .. string.match(text, '(%S+)$'))
    elseif text then
      lib.call('HDEL', lib.LEVELS, level)
    end
  end
end

-- Running jobs of a task that gets a limit get its lane, too.
function lib.count_running(name, kind, which)
  local limits, ids = lib.read_limits(), lib.call('HKEYS', lib.RUN)
  local entries = lib.fetch(lib.RUN, ids)
  local function count(queue, task, lane)
    for _, level in ipairs(lib.level_names(queue, task, lane)) do
      if lib.limit_name(level) == name and lib.limit_of(limits, level) then
        lib.level_of(level).running = lib.level_of(level).running + 1
        lib.touched[level] = true
      end
    end
  end
  lib.each_place(count)
  for number, record in ipairs(lib.fetch(lib.JOBS, ids)) do
    local tail = lib.tail_of(record)
    local limited = kind ~= 'queue' and tail.task == which
    if limited and lib.migrate_to_lane(ids[number], record, entries[number]) then tail.lane = '' end
    count(tail.queue, tail.task, tail.lane)
  end
end

function lib.begin_migration(task)
  local lines = lib.lines_of_task(task)
  if #lines == 1 then return {} end
  lib.call('SADD', lib.MIGRATING, task)
  return lines
end

-- recount: counts anew how many jobs run under each limit.
-- Keys: limits, levels, run, jobs, closed, again, cells, cellnames, and lanes; wakes for `w`.
-- Arguments: now.
-- Answer: how many levels were wrong.
-- Cost: one read of all of `run`, of all levels, and of the records of running jobs that are unusual.
function lib.recount()
  local now, limits, wrong = tonumber(ARGV[1]), lib.read_limits(), 0
  if not limits then return 0 end
  for name, running in pairs(lib.running_counts(limits)) do
    if lib.level_of(name).running ~= running then
      lib.level_of(name).running = running
      lib.touched[name], lib.lowered[name], wrong = true, true, wrong + 1
    end
  end
  lib.reopen_wrongly_closed(limits, now)
  lib.write_levels(0)
  if wrong > 0 then lib.wake('w') end
  return wrong
end

-- How many jobs run, by the name of each level that is or should be there.
function lib.running_counts(limits)
  local counts, unusual, entries = {}, {}, lib.call('HGETALL', lib.RUN)
  local function count(queue, task, lane)
    for _, name in ipairs(lib.level_names(queue, task, lane)) do
      if lib.limit_of(limits, name) then counts[name] = (counts[name] or 0) + 1 end
    end
  end
  -- Of a job whose entry has no names the record is read.
  for at = 1, #entries, 2 do
    local names, _, lane = lib.parse_entry(entries[at + 1])
    if names then
      local queue, task = lib.split_names(names)
      count(queue, task, lane)
    else
      unusual[#unusual + 1] = entries[at]
    end
  end
  for _, record in ipairs(lib.fetch(lib.JOBS, unusual)) do
    local tail = lib.tail_of(record)
    count(tail.queue, tail.task, tail.lane)
  end
  lib.each_place(count)
  for _, name in ipairs(lib.call('HKEYS', lib.LEVELS)) do
    if not counts[name] and lib.limit_of(limits, name) then counts[name] = 0 end
  end
  return counts
end

-- Has `write_levels` open each lane that is closed although it has room, or until a time further ahead than its limit
-- allows, since the clock was set back.
function lib.reopen_wrongly_closed(limits, now)
  for _, name in ipairs(lib.call('HKEYS', lib.CLOSED)) do
    local limit = lib.limit_of(limits, 'each:' .. name)
    local again = limit and lib.call('ZSCORE', lib.REOPEN_AT, name)
    local stays = limit and limit.most and lib.level_of('each:' .. name).running >= limit.most
    if again then stays = tonumber(again) <= now + lib.furthest(limit) end
    if not stays then lib.lowered['each:' .. name] = true end
  end
end
