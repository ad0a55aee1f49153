-- Limits: what is set. `levels.lua` has how far each is used.

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
      limit.ends = tonumber(string.match(rest, ' s[^:]*:%d+:(%d+)') or 0)
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

-- change_shares: changes parts of limits, each if it is as it was seen.
-- Keys: limits, levels; wakes for `w`.
-- Arguments: now; for each its name, its numbers before and after, so many starts that the rate counts as if they had
-- just been, and 1 if more may start than before.
-- Answer: for each 1, or 0 if it was not so.
-- Cost: a read and a write for each.
function lib.change_shares()
  local now, answer, wakes = tonumber(ARGV[1]), {}, false
  for at = 2, #ARGV, 5 do
    local name, used = ARGV[at], tonumber(ARGV[at + 3])
    local as_seen = lib.call('HGET', lib.LIMITS, name) == ARGV[at + 1]
    if as_seen then
      lib.call('HSET', lib.LIMITS, name, ARGV[at + 2])
      if used > 0 then lib.count_used(name, used, now) end
      wakes = wakes or ARGV[at + 4] == '1'
    end
    answer[#answer + 1] = as_seen and 1 or 0
  end
  lib.write_levels(now)
  if wakes then lib.wake('w') end
  return answer
end

function lib.count_used(name, used, now)
  local level = lib.level_of(name)
  level.limit = lib.read_limit({}, name)
  if level.limit.count == 0 then return end
  local on_time, spacing = lib.next_start(level, now), level.limit.spacing
  -- As `Level.with_moved`: at most until nothing has started for a whole period.
  level.next = math.max(on_time, math.min(math.max(on_time, now) + used * spacing, now + level.limit.count * spacing))
  lib.touch(level)
end

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
    for _, level in ipairs(lib.levels_of(limits, queue, task, lane)) do
      if lib.limit_name(level.name) == name then
        level.running = level.running + 1
        lib.touch(level)
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
    local level = lib.level_of(name)
    if level.running ~= running then
      level.running, wrong = running, wrong + 1
      lib.sink_level(level)
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
    for _, level in ipairs(lib.levels_of(limits, queue, task, lane)) do
      counts[level.name] = (counts[level.name] or 0) + 1
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

-- Opens each lane that is closed although it has room, or until a time further ahead than its limit allows, since the
-- clock was set back.
function lib.reopen_wrongly_closed(limits, now)
  local names = {}
  for _, name in ipairs(lib.call('HKEYS', lib.CLOSED)) do
    local limit = lib.limit_of(limits, 'each:' .. name)
    local again = limit and lib.call('ZSCORE', lib.REOPEN_AT, name)
    local stays = limit and limit.most and lib.level_of('each:' .. name).running >= limit.most
    if again then stays = tonumber(again) <= now + lib.furthest(limit) end
    if not stays then names[#names + 1] = name end
  end
  lib.open_lanes(names)
end
