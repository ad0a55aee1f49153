-- ARGV: now. Counts anew how many jobs run under each limit; answers how many levels said otherwise.
local now, limits, counts, wrong = tonumber(ARGV[1]), lib.read_limits(), {}, 0
if not limits then return 0 end

local function count(queue, task, lane)
  for _, name in ipairs(lib.level_names(queue, task, lane)) do
    if lib.limit_of(limits, name) then counts[name] = (counts[name] or 0) + 1 end
  end
end

-- The entry of a plain job has its names, and it has no lane; of the others the record is read.
local unusual, entries = {}, lib.call('HGETALL', lib.RUN)
for at = 1, #entries, 2 do
  local queue, task = lib.byte(entries[at + 1], 17, 18)
  if queue > 0 then
    count((lib.split(lib.sub(entries[at + 1], 17, 18 + queue + task))))
  else
    unusual[#unusual + 1] = entries[at]
  end
end
for _, record in ipairs(lib.fetched(lib.JOBS, unusual)) do
  local tail = lib.tail_in(record)
  count(tail.queue, tail.task, tail.lane)
end

for _, name in ipairs(lib.call('HKEYS', lib.LEVELS)) do
  if not counts[name] and lib.limit_of(limits, name) then counts[name] = 0 end
end
for name, running in pairs(counts) do
  if lib.level_of(name).running ~= running then
    lib.level_of(name).running = running
    lib.touched[name], lib.lowered[name], wrong = true, true, wrong + 1
  end
end
-- A lane that is closed although it has room, or until a time that is further ahead than its limit holds anything back,
-- since the clock was set back, is opened by `write_levels` too.
for _, name in ipairs(lib.call('HKEYS', lib.CLOSED)) do
  local limit = limits['each:' .. string.match(name, '^[^' .. lib.OF .. ']*')]
  local again = limit and lib.call('ZSCORE', lib.AGAIN, name)
  local stays = limit and limit.most and lib.level_of('each:' .. name).running >= limit.most
  if again then stays = tonumber(again) <= now + 2 * limit.period end
  if not stays then lib.lowered['each:' .. name] = true end
end
lib.write_levels(0)
if wrong > 0 then lib.ring('w') end
return wrong
