-- How many jobs wait, counted up to a bound. Nothing is changed.

-- How many entries of a line are from `first` to before `last`, where nil is its begin or end; at most some pages more
-- than `most`. parts: a list to which what was counted is added, if there is one.
function lib.count_between(key, width, first, last, most, parts)
  local page = first and lib.page_with(key, first)
  local from, to, at, bytes = page and '[' .. page or '-', last and '(' .. last or '+', 0, 0
  while bytes < most * width do
    local pages = lib.call('ZRANGEBYLEX', key, from, to, 'LIMIT', at, 100)
    for _, run in ipairs(pages) do
      local start = first and lib.less(lib.sub(run, 1, width), first) and lib.bytes_before(width, run, first) or 0
      local stop = last and not lib.less(lib.sub(run, -width), last) and lib.bytes_before(width, run, last) or #run
      bytes = bytes + stop - start
      if parts then parts[#parts + 1] = lib.sub(run, start + 1, stop) end
    end
    at = at + 100
    if #pages < 100 then break end
  end
  return bytes / width
end

-- waiting_due: how many scheduled jobs come due between two moments.
-- Keys: reads due, and jobs if queues are named.
-- Arguments: from when, until before when, nothing where there is no such bound; how many to look at at most; 1 for all
-- queues, else 0 and their names.
-- Answer: how many are of these queues; how many were looked at.
-- Cost: reads what it looks at, and with names of queues the records of these jobs.
function lib.waiting_due()
  local first = ARGV[1] ~= '' and lib.pack('>I8', ARGV[1] + 0) .. ('\0'):rep(16) or nil
  local last = ARGV[2] ~= '' and lib.pack('>I8', ARGV[2] + 0) .. ('\0'):rep(16) or nil
  local most, is_all, parts = ARGV[3] + 0, ARGV[4] == '1', {}
  local seen = math.min(most, lib.count_between(lib.DUE, 24, first, last, most, not is_all and parts or nil))
  if is_all then return {seen, seen} end
  local asked, entries, ids, count = {}, lib.concat(parts), {}, 0
  for number = 5, #ARGV do asked[ARGV[number]] = true end
  for number = 1, seen do ids[number] = lib.sub(entries, 24 * number - 15, 24 * number) end
  for _, record in ipairs(lib.fetch(lib.JOBS, ids)) do
    if record and asked[lib.tail_of(record).queue] then count = count + 1 end
  end
  return {count, seen}
end

-- Shows the line of each lane of a band, until `show` answers true. Each lane that is known has something in it.
function lib.each_lane(queue, band, most, show)
  for _, task in ipairs(lib.call('ZRANGE', lib.tasks_key(queue, band), 0, most)) do
    for _, lane in ipairs(lib.call('ZRANGE', lib.lanes_key(queue, band, task), 0, most)) do
      if show(lib.lane_line(queue, band, task, lane)) then return end
    end
  end
end

-- waiting_bands: how many jobs of a queue are ready in each band.
-- Keys: reads lines and lanes.
-- Arguments: queue, how many to count at most in each, letters of bands.
-- Answer: the counts.
-- Cost: reads what it counts.
function lib.waiting_bands()
  local queue, most, counts = ARGV[1], ARGV[2] + 0, {}
  for number = 3, #ARGV do
    local band = ARGV[number]
    local width, count = lib.WIDTHS[band], lib.count_open(queue, band, nil, nil, most)
    lib.each_lane(queue, band, most, function(key)
      if count < most then count = count + lib.count_between(key, width + 1, nil, nil, most - count) end
      return count >= most
    end)
    counts[#counts + 1] = count
  end
  return counts
end

-- waiting_lane: how many jobs of a lane are ready in a queue.
-- Keys: reads lanes.
-- Arguments: queue, task, lane, how many to count at most in each band, letters of bands.
-- Answer: how many; when the first of them was due, '0' if there are none.
-- Cost: reads what it counts.
function lib.waiting_lane()
  local queue, task, lane, most, count, oldest = ARGV[1], ARGV[2], ARGV[3], ARGV[4] + 0, 0, nil
  for number = 5, #ARGV do
    local band, parts = ARGV[number], {}
    local width = lib.WIDTHS[band] + 1
    count = count + lib.count_between(lib.lane_line(queue, band, task, lane), width, nil, nil, most, parts)
    local entries = lib.concat(parts)
    -- Due stands before the id of 16 bytes and the byte that says whether it is late.
    for last = width, #entries, width do
      local due = lib.parse('>I8', entries, last - 24)
      oldest = math.min(oldest or due, due)
    end
  end
  return {count, string.format('%.0f', oldest or 0)}
end

-- How many ready jobs without a lane are from `first` to before `last`, on time and late.
function lib.count_open(queue, band, first, last, most)
  local width = lib.WIDTHS[band]
  return lib.count_between(lib.open_line(queue, band), width, first, last, most)
    + lib.count_between(lib.open_line(queue, band, true), width, first, last, most)
end

-- waiting_before: how many ready jobs of a queue have which place to one of them.
-- Keys: reads lines and lanes.
-- Arguments: queue, how many to count at most of each kind, the letter of its band, its claim order and the next one
-- (nothing in the normal band), its due and id, the letters of higher bands.
-- Answer: of a higher priority; of its own and earlier, on time and late; all of its own, on time and late; in lanes of
-- a higher priority or earlier; how many in lanes were looked at.
-- Cost: reads what it counts.
function lib.waiting_before()
  local queue, most, band, claim_order, following, place = ARGV[1], ARGV[2] + 0, ARGV[3], ARGV[4], ARGV[5], ARGV[6]
  local width, zeros, found = lib.WIDTHS[band], ('\0'):rep(24), {0, 0, 0, 0, 0, 0, 0}
  local first, last = claim_order ~= '' and claim_order .. zeros or nil, following ~= '' and following .. zeros or nil
  if first then found[1] = lib.count_open(queue, band, nil, first, most) end
  for kind = 0, 1 do
    local key = lib.open_line(queue, band, kind == 1)
    found[2 + kind] = lib.count_between(key, width, first, claim_order .. place, most)
    found[4 + kind] = lib.count_between(key, width, first, last, most)
  end
  lib.add_lanes_before(found, queue, band, most, claim_order .. place .. '\0')
  for number = 7, #ARGV do
    found[1] = found[1] + lib.count_open(queue, ARGV[number], nil, nil, most)
    lib.add_lanes_before(found, queue, ARGV[number], most, nil)
  end
  return found
end

function lib.add_lanes_before(found, queue, band, most, last)
  lib.each_lane(queue, band, most, function(key)
    if found[7] < most then
      local width = lib.WIDTHS[band] + 1
      local before = lib.count_between(key, width, nil, last, most - found[7])
      -- At least one was looked at.
      found[6], found[7] = found[6] + before, found[7] + math.max(1, before)
    end
    return found[7] >= most
  end)
end

-- waiting_tasks: the limited tasks of which jobs are ready in a queue.
-- Keys: reads lanes.
-- Arguments: queue, the task after which they are to be, how many at most in each band, letters of bands.
-- Answer: the names of each band.
-- Cost: reads what it answers.
function lib.waiting_tasks()
  local found = {}
  for number = 4, #ARGV do
    local key = lib.tasks_key(ARGV[1], ARGV[number])
    found[#found + 1] = lib.call('ZRANGEBYLEX', key, '(' .. ARGV[2], '+', 'LIMIT', 0, ARGV[3])
  end
  return found
end
