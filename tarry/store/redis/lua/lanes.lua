-- Claiming where there are limits or lanes: as `tarry.store.lanes` and `tarry.store.sqlite.lanes` do it.
--
-- At most so many lanes of a task are looked at in one claim, of which so many without room: those are closed, which
-- takes longer.
lib.EXAMINED, lib.FULL = 1000, 100
lib.turns = {}

function lib.turn_of(task)
  if lib.turns[task] == nil then lib.turns[task] = lib.call('HGET', lib.TURNS, task) end
  return lib.turns[task]
end

-- Names of lanes after that one, then those up to it; all, if none was served yet.
function lib.circle(key, turn)
  if not turn then return lib.call('ZRANGEBYLEX', key, '-', '+', 'LIMIT', 0, lib.EXAMINED + 1) end
  local names = lib.call('ZRANGEBYLEX', key, '(' .. turn, '+', 'LIMIT', 0, lib.EXAMINED + 1)
  for _, name in ipairs(lib.call('ZRANGEBYLEX', key, '-', '[' .. turn, 'LIMIT', 0, lib.EXAMINED + 1)) do
    names[#names + 1] = name
  end
  return names
end

-- Lanes with room, and how much, beginning after the one served last.
function lib.roomy_lanes(limits, want, task, most, now)
  local found, full = {}, 0
  for number, lane in ipairs(lib.circle(lib.open_key(want.queue, want.band, task), lib.turn_of(task))) do
    if number > lib.EXAMINED or full == lib.FULL then
      -- Not all were looked at, so it is worth coming again at once.
      lib.again = 0
      break
    end
    local left, again = lib.room(limits, 'each:' .. task .. lib.OF .. lane, most, now)
    if left > 0 then
      local key = lib.lane_line(want.queue, want.band, task, lane)
      found[#found + 1] = {task = task, lane = lane, room = left, key = key}
    else
      lib.close_lane(want.queue, want.band, task, lane, again)
      full = full + 1
    end
    if #found == most then break end
  end
  return found
end

-- One from each lane in turn, until there are so many, or none is left.
function lib.dealt(limits, want, task, most, now)
  most = lib.room(limits, 'task:' .. task, most, now)
  if most == 0 then return {} end
  local lanes, width, total = lib.roomy_lanes(limits, want, task, most, now), lib.WIDTHS[want.band] + 1, 0
  local fair = math.ceil(most / math.max(1, #lanes))
  for _, line in ipairs(lanes) do
    lib.seen(line, width, math.min(line.room, fair))
    total = total + line.count
  end
  if total < most then
    -- Some gave less than their part: what they leave is the others'.
    for _, line in ipairs(lanes) do
      if line.count == fair then lib.seen(line, width, line.room) end
    end
  end
  local given, turn = {}, 1
  repeat
    local before_ = #given
    for _, line in ipairs(lanes) do
      if line.count >= turn and #given < most then given[#given + 1] = {line, lib.entry_of(line, turn)} end
    end
    turn = turn + 1
  until #given == before_
  return given
end

-- What may be taken from an open line: so many of its first.
function lib.waiting(line, band, most, laying)
  if laying and not lib.laid(line.key, lib.WIDTHS[band], most, laying) then
    -- More than can be done at once: what stands in this line comes next time.
    lib.again = 0
    return {}
  end
  return lib.first_in(line, band, most)
end

function lib.take(limits, want, count, now, laying)
  local tasks = lib.call('ZRANGE', lib.tasks_key(want.queue, want.band), 0, -1)
  local late, on_time = lib.open_lines(want)
  if #tasks == 0 and lib.call('EXISTS', late.key, on_time.key) == 0 then return {} end
  local most = lib.room(limits, 'queue:' .. want.queue, count, now)
  if most == 0 then return {} end
  local lines = {lib.waiting(late, want.band, most, laying), lib.waiting(on_time, want.band, most, laying)}
  tasks = laying and lib.call('ZRANGE', lib.tasks_key(want.queue, want.band), 0, -1) or tasks
  for _, task in ipairs(tasks) do lines[#lines + 1] = lib.dealt(limits, want, task, most, now) end
  return lib.first_of(lines, want.band, most)
end

-- Takes what was chosen out of its lines: of each, so many of its first.
function lib.taken_out(want, given, ids, limits, now)
  local counts, width = {}, lib.WIDTHS[want.band]
  for _, one in ipairs(given) do
    local line, entry = one[1], one[2]
    counts[line] = (counts[line] or 0) + 1
    ids[#ids + 1] = lib.sub(entry, width - 15, width)
    if limits then lib.started(limits, want.queue, line.task, line.lane, now) end
    if line.lane then lib.turns[line.task] = line.lane end
  end
  for line, count in pairs(counts) do
    lib.pop(line.key, line.width, count)
    if line.lane then lib.register(line.key, {want.queue, want.band, line.task, line.lane}) end
  end
end

-- Lanes whose rate lets one start by now; `again` says when that of the next does.
function lib.open_by_time(now)
  lib.open_lanes(lib.call('ZRANGEBYSCORE', lib.AGAIN, '-inf', string.format('%.0f', now), 'LIMIT', 0, lib.FULL))
  local first = lib.call('ZRANGE', lib.AGAIN, 0, 0, 'WITHSCORES')[2]
  if first then lib.again = tonumber(first) > now and tonumber(first) or 0 end
end

function lib.choose_by_turn(limits, wants, limit, now, ids)
  local laying = lib.laying()
  lib.open_by_time(now)
  for _, fill in ipairs({false, true}) do
    for _, want in ipairs(wants) do
      local most = math.min(fill and limit or want.count, limit - #ids)
      if most > 0 then lib.taken_out(want, lib.take(limits, want, most, now, laying), ids, limits, now) end
    end
  end
  for task, lane in pairs(lib.turns) do
    if lane then lib.call('HSET', lib.TURNS, task, lane) end
  end
end
