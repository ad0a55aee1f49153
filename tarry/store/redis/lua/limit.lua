-- ARGV: the name of a limit, which kind it is and of what, and its numbers; no numbers: it is lifted. Answers 1 if jobs
-- wait that may have no lane: then `laying` has to be called.
local name, kind, which, numbers = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local function reset()
  -- Only those of keys have levels of other names than their own.
  for _, level in ipairs(kind == 'each' and lib.call('HKEYS', lib.LEVELS) or {name}) do
    local text = string.match(level, '^[^' .. lib.OF .. ']*') == name and lib.call('HGET', lib.LEVELS, level)
    if text and numbers then
      lib.call('HSET', lib.LEVELS, level, '0 ' .. string.match(text, '(%S+)$'))
    elseif text then
      lib.call('HDEL', lib.LEVELS, level)
    end
  end
end

-- Answers 1 if jobs of the task wait that may have no lane.
local function begin_laying()
  if kind == 'queue' then return 0 end
  for _, field in ipairs(lib.call('HKEYS', lib.COUNTS)) do
    local _, task = lib.split(lib.sub(field, 2))
    if lib.byte(field) <= 48 + lib.READY and task == which then
      lib.call('SADD', lib.LAYING, which)
      return 1
    end
  end
  return 0
end

local function count_running(limits)
  local ids = lib.call('HKEYS', lib.RUN)
  local runs = lib.fetched(lib.RUN, ids)
  for number, record in ipairs(lib.fetched(lib.JOBS, ids)) do
    local tail = lib.tail_in(record)
    if kind ~= 'queue' and tail.task == which and lib.lay(ids[number], record, runs[number]) then tail.lane = '' end
    for _, level in ipairs(lib.level_names(tail.queue, tail.task, tail.lane)) do
      if lib.limit_of(limits, level) and string.match(level, '^[^' .. lib.OF .. ']*') == name then
        lib.level_of(level).running = lib.level_of(level).running + 1
        lib.touched[level] = true
      end
    end
  end
end

local function open_all()
  local names = {}
  for _, closed in ipairs(kind == 'each' and lib.call('HKEYS', lib.CLOSED) or {}) do
    if lib.sub(closed, 1, #which + 1) == which .. lib.OF then names[#names + 1] = closed end
  end
  lib.open_lanes(names)
end

local left = 0
open_all()
if numbers and lib.call('HEXISTS', lib.LIMITS, name) == 1 then
  -- What runs is counted, and jobs have lanes or get them, since it is there: nobody has to look through all of them.
  lib.call('HSET', lib.LIMITS, name, numbers)
  lib.ring('w')
  return kind == 'queue' and 0 or lib.call('SISMEMBER', lib.LAYING, which)
end
reset()
if numbers then
  lib.call('HSET', lib.LIMITS, name, numbers)
  count_running(lib.read_limits())
  lib.write_levels(0)
  left = begin_laying()
else
  lib.call('HDEL', lib.LIMITS, name)
  if lib.call('HEXISTS', lib.LIMITS, 'task:' .. which) + lib.call('HEXISTS', lib.LIMITS, 'each:' .. which) == 0 then
    lib.call('SREM', lib.LAYING, which)
  end
end
lib.ring('w')
return left
