-- ARGV: now, how many to count at most, 1 for all queues, else 0 and their names. Answers how many jobs could run now,
-- and the earliest due among them.
local now, most, all = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] == '1'
local names, asked, paused = {}, {}, {}
local count, oldest = 0, now
for _, queue in ipairs(lib.call('SMEMBERS', lib.PAUSED)) do paused[queue] = true end
for number = 4, #ARGV do names[number - 3] = ARGV[number] end
if all then names = lib.call('SMEMBERS', lib.QUEUES) end
for _, queue in ipairs(names) do asked[queue] = true end

-- Counts what is in a line; in a lane, entries are one byte longer.
local function see(key, band, longer)
  local width = lib.WIDTHS[band]
  local entries = lib.peek(key, width + longer, most - count)
  for at = width - 23, #entries, width + longer do
    count, oldest = count + 1, math.min(oldest, (lib.parsed('>I8', entries, at)))
  end
end

-- Each lane that is known by name has something in it, so that the count is what bounds this.
local function see_lanes(queue, band)
  for _, task in ipairs(lib.call('ZRANGE', lib.tasks_key(queue, band), 0, most)) do
    for _, lane in ipairs(lib.call('ZRANGE', lib.lanes_key(queue, band, task), 0, most)) do
      if count >= most then return end
      see(lib.lane_line(queue, band, task, lane), band, 1)
    end
  end
end

local entries, ids, dues = lib.peek(lib.DUE, 24, most), {}, {}
for at = 1, #entries, 24 do
  local due = lib.parsed('>I8', entries, at)
  if due > now then break end
  ids[#ids + 1], dues[#dues + 1] = lib.sub(entries, at + 8, at + 23), due
end
for number, record in ipairs(lib.fetched(lib.JOBS, ids)) do
  local queue = lib.tail_in(record).queue
  if not paused[queue] and (all or asked[queue]) then
    count, oldest = count + 1, math.min(oldest, dues[number])
  end
end
for queue in pairs(asked) do
  for band in pairs(lib.WIDTHS) do
    if count < most and not paused[queue] then
      see(lib.open_line(queue, band, true), band, 0)
      see(lib.open_line(queue, band), band, 0)
      see_lanes(queue, band)
    end
  end
end
return {count, oldest}
