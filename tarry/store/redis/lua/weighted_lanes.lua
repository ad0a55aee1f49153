-- Whose turn it is among the lanes of a task, where some keys have weights; `rules.weights.weighted_turns` explains it,
-- and the arithmetic is the same here. A share is a lane with a weight of its own, or the group of the others.
lib.ROUND, lib.GROUP_PLACE, lib.MOST_OF_GROUP, lib.MOST_WEIGHT = 2^30, 2^47, 2^20, 1000
-- Up to so many open lanes are all looked at.
lib.FEW_LANES = 64
lib.KEY_WEIGHTS = 'key-weights:'

-- The weights in such values, by their texts: a library keeps the last ones, since each claim needs all of a task.
lib.WEIGHTS_IN, lib.WEIGHTS_IN_COUNT = {}, 0
function lib.decode_weights(text)
  local weights = lib.WEIGHTS_IN[text]
  if not weights then
    local fine, decoded = pcall(cjson.decode, text)
    weights = fine and type(decoded) == 'table' and decoded or {}
    if lib.WEIGHTS_IN_COUNT > 20 then lib.WEIGHTS_IN, lib.WEIGHTS_IN_COUNT = {}, 0 end
    lib.WEIGHTS_IN[text], lib.WEIGHTS_IN_COUNT = weights, lib.WEIGHTS_IN_COUNT + 1
  end
  return weights
end

-- The weights of keys of a task, by lane: not to be changed.
function lib.read_weights(task)
  return lib.decode_weights(lib.call('HGET', lib.CELLS, lib.KEY_WEIGHTS .. task) or '{}')
end

-- Keeps the weight of a key; nil: it has none.
function lib.keep_weight(task, lane, weight)
  local name = lib.KEY_WEIGHTS .. task
  local text = lib.call('HGET', lib.CELLS, name) or '{}'
  local weights = lib.decode_weights(text)
  if weights[lane] == weight and (text == '{}' or next(weights)) then return end
  local changed = weight and next(weights) and lib.put_weight(text, lane, weights[lane], weight)
  lib.set_cell(name, changed or lib.encode_weights(weights, lane, weight))
end

-- The text with one weight changed or added, without the others being written anew; nil if it was written in another
-- way than we do.
function lib.put_weight(text, lane, old, weight)
  local mark = cjson.encode(lane) .. ':'
  if old == nil and lib.sub(text, -1) == '}' then return lib.sub(text, 1, -2) .. ',' .. mark .. weight .. '}' end
  if type(old) ~= 'number' then return nil end
  local at, last = string.find(text, mark .. old, 1, true)
  local before, after = at and lib.sub(text, at - 1, at - 1), at and lib.sub(text, last + 1, last + 1)
  if not at or not string.find(before, '[{,]') or not string.find(after, '[,}]') then return nil end
  return lib.sub(text, 1, last - #tostring(old)) .. weight .. lib.sub(text, last + 1)
end

-- The text of all weights, of which one changes; nil if no key has one.
function lib.encode_weights(weights, lane, weight)
  local changed = {}
  for name, value in pairs(weights) do changed[name] = value end
  changed[lane] = weight
  return next(changed) and cjson.encode(changed)
end

-- What is kept of a task: the lane without a weight that was served last, the start that was last, how many lanes had
-- a turn in the last round, and since then. Of a task without weights it is the lane alone.
function lib.read_turn(text)
  local time, place, size, passed, lane = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+)\31(.*)$')
  if not time then return {lane = text or false, time = 0, place = 0, size = 0, passed = 0} end
  return {
    lane = lane, time = tonumber(time), place = tonumber(place), size = tonumber(size), passed = tonumber(passed),
  }
end

function lib.turn_text(turn)
  local numbers = string.format('%.0f %.0f %.0f %.0f', turn.time % lib.ROUND, turn.place, turn.size, turn.passed)
  return numbers .. '\31' .. (turn.lane or '')
end

-- What is kept of a task without weights: the lane, unless its name would be read as more than that.
function lib.lane_text(lane)
  local turn = lib.read_turn(lane)
  if turn.lane == lane then return lane end
  turn.time, turn.place, turn.size, turn.passed, turn.lane = 0, 0, 0, 0, lane
  return lib.turn_text(turn)
end

-- By `turn_name`, the tasks with weights that this claim met.
lib.weighted = {}

function lib.weighted_task(want, task, each)
  local name = lib.turn_name(want, task)
  local turn = lib.weighted[name]
  if not turn then
    turn = lib.read_turn(lib.call('HGET', lib.TURNS, name))
    turn.weights, turn.weight = lib.read_weights(task), each.weight
    lib.weighted[name] = turn
  end
  return turn
end

-- Places of lanes by name: a library keeps them, since a claim may look at a thousand.
lib.LANE_PLACES, lib.LANE_PLACES_COUNT = {}, 0
function lib.place_of_lane(lane)
  local place = lib.LANE_PLACES[lane]
  if not place then
    place = tonumber(lib.sub(redis.sha1hex(lane), 1, 12), 16)
    if lib.LANE_PLACES_COUNT > 10000 then lib.LANE_PLACES, lib.LANE_PLACES_COUNT = {}, 0 end
    lib.LANE_PLACES[lane], lib.LANE_PLACES_COUNT = place, lib.LANE_PLACES_COUNT + 1
  end
  return place
end

function lib.share_of(turn, lane)
  local weight = math.min(math.max(1, tonumber(turn.weights[lane]) or 1), lib.MOST_WEIGHT)
  return {weight = weight, place = lib.place_of_lane(lane), lane = lane, time = 0}
end

function lib.share_of_group(turn, lanes)
  local weight = math.max(1, math.min(turn.weight * math.max(1, lanes), lib.MOST_OF_GROUP))
  return {weight = weight, place = lib.GROUP_PLACE}
end

-- The time of the first start of a share behind that of `place` at this time.
function lib.first_start(share, time, place)
  local offset = math.floor(share.place / 2^18)
  local number = math.ceil((time * share.weight - offset) / lib.ROUND)
  local found = math.floor((number * lib.ROUND + offset) / share.weight)
  if found < time or found == time and share.place <= place then
    found = math.floor(((number + 1) * lib.ROUND + offset) / share.weight)
  end
  return found
end

function lib.is_sooner(a, b)
  if a.time ~= b.time then return a.time < b.time end
  return a.place < b.place
end

-- Moves the share at this place of a heap down to where it belongs: the soonest is the first.
function lib.sink(heap, at)
  local share, count = heap[at], #heap
  while 2 * at <= count do
    local child = 2 * at
    if child < count and lib.is_sooner(heap[child + 1], heap[child]) then child = child + 1 end
    if not lib.is_sooner(heap[child], share) then break end
    heap[at], at = heap[child], child
  end
  heap[at] = share
end

-- The shares in the order of their starts, until each had its `count`, or there are so many.
function lib.in_turn(turn, shares, most)
  local heap, given = {}, {}
  for _, share in ipairs(shares) do
    share.left, share.time = share.count, lib.first_start(share, turn.time, turn.place)
    if share.count > 0 then heap[#heap + 1] = share end
  end
  for at = math.floor(#heap / 2), 1, -1 do lib.sink(heap, at) end
  while #heap > 0 and #given < most do
    local share = heap[1]
    given[#given + 1], share.left = share, share.left - 1
    if share.left > 0 then
      share.time = lib.first_start(share, share.time, share.place)
    else
      heap[1] = heap[#heap]
      heap[#heap] = nil
    end
    if #heap > 0 then lib.sink(heap, 1) end
  end
  return given
end

-- A job of this lane starts.
function lib.start_in_turn(turn, line)
  local share = line.share or turn.group
  turn.time, turn.place = lib.first_start(share, turn.time, turn.place), share.place
  if line.share then return end
  -- Behind the last name comes the first: then all had a turn.
  if turn.lane and line.lane <= turn.lane then turn.size, turn.passed = math.max(1, turn.passed), 0 end
  turn.lane, turn.passed = line.lane, turn.passed + 1
end

-- A heap of the shares of those open lanes that have weights: the one that starts next is the first. names: of all open
-- lanes; nil: there are too many to read.
function lib.own_shares(open, turn, names)
  local heap = {}
  local function add(lane)
    local share = lib.share_of(turn, lane)
    share.time = lib.first_start(share, turn.time, turn.place)
    heap[#heap + 1] = share
  end
  for _, lane in ipairs(names or {}) do
    if turn.weights[lane] then add(lane) end
  end
  for lane in pairs(names and {} or turn.weights) do
    if lib.call('ZSCORE', open, lane) then add(lane) end
  end
  for at = math.floor(#heap / 2), 1, -1 do lib.sink(heap, at) end
  return heap
end

-- Takes the lanes that start next out of such a heap: so many.
function lib.pop_lanes(heap, most)
  local lanes = {}
  while #heap > 0 and #lanes < most do
    lanes[#lanes + 1] = heap[1].lane
    heap[1] = heap[#heap]
    heap[#heap] = nil
    if #heap > 0 then lib.sink(heap, 1) end
  end
  return lanes
end

-- Lanes with weights that have room, by their next start. Behind as many as there are starts, none can start.
function lib.own_lanes(limits, want, task, heap, most, now)
  local found, full = {}, 0
  while #heap > 0 and #found < most do
    if full >= lib.MAX_CLOSED then
      lib.retry_at = 0
      break
    end
    local lanes = lib.pop_lanes(heap, math.min(most - #found, lib.MAX_CLOSED))
    local roomy = lib.roomy_lanes(limits, want, task, lanes, most, #lanes, now)
    full = full + #lanes - #roomy
    for _, line in ipairs(roomy) do found[#found + 1] = line end
  end
  return found
end

-- Lanes with room: those with weights, some of the others from the one whose turn it is, and how many others there are.
function lib.lanes_by_weight(limits, want, task, turn, most, now)
  local open = lib.open_lanes_key(want.queue, want.band, task)
  local count, own, others = lib.call('ZCARD', open), {}, {}
  local is_few = count <= lib.FEW_LANES
  local names = lib.lanes_after(open, turn.lane, lib.MAX_EXAMINED + 1)
  for _, lane in ipairs(names) do
    if is_few or not turn.weights[lane] then others[#others + 1] = lane end
  end
  if is_few then
    local found = lib.roomy_lanes(limits, want, task, others, most, count, now)
    others = {}
    for _, line in ipairs(found) do
      local kind = turn.weights[line.lane] and own or others
      kind[#kind + 1] = line
    end
    return own, others, #others
  end
  local heap = lib.own_shares(open, turn, count <= lib.MAX_EXAMINED and names)
  local with_weight = #heap
  own = lib.own_lanes(limits, want, task, heap, most, now)
  return own, lib.roomy_lanes(limits, want, task, others, most, most, now), count - with_weight
end

-- Reads so many of the first jobs of each of these lanes: no more than it has room for.
function lib.peek_lanes(lines, width, share)
  local total = 0
  for _, line in ipairs(lines) do
    line.asked = math.min(line.room, share or line.share.wanted)
    line.count = 0
    if line.asked > 0 then lib.peek_line(line, width, line.asked) end
    total = total + line.count
  end
  return total
end

-- What lanes gave all that was asked of them may give so many more.
function lib.peek_more(lines, width, missing)
  for _, line in ipairs(lines) do
    local most = math.min(line.room, line.asked + missing)
    if line.count == line.asked and line.count < most then
      if line.count > 0 then lib.peek_further(line, most) else lib.peek_line(line, width, most) end
    end
  end
end

-- Candidates of a task's lanes: by weight, until there are so many, or none is left.
function lib.deal_by_weight(limits, each, want, task, most, now)
  local turn, width = lib.weighted_task(want, task, each), lib.WIDTHS[want.band] + 1
  local own, others, size = lib.lanes_by_weight(limits, want, task, turn, most, now)
  local group, shares = lib.share_of_group(turn, size), {}
  turn.group = group
  group.count, group.wanted, shares[1] = 0, 0, group
  for _, line in ipairs(others) do group.count = group.count + line.room end
  for number, line in ipairs(own) do
    local share = lib.share_of(turn, line.lane)
    line.share, share.line, share.count, share.wanted, shares[number + 1] = share, line, line.room, 0, share
  end
  for _, share in ipairs(lib.in_turn(turn, shares, most)) do share.wanted = share.wanted + 1 end
  local fair = math.ceil(group.wanted / math.max(1, #others))
  local missing = most - lib.peek_lanes(own, width) - lib.peek_lanes(others, width, fair)
  if missing > 0 then
    -- Some gave less than their part: what they leave is the others'.
    lib.peek_more(own, width, missing)
    lib.peek_more(others, width, missing)
  end
  group.dealt, group.count = lib.deal_equally(others, most), 0
  group.count = #group.dealt
  for _, line in ipairs(own) do line.share.count = line.count end
  return lib.candidates_by_weight(lib.in_turn(turn, shares, most))
end

function lib.candidates_by_weight(order)
  local given, of_group = {}, 0
  for number, share in ipairs(order) do
    if share.dealt then
      of_group = of_group + 1
      given[number] = share.dealt[of_group]
    else
      given[number] = share.line
    end
  end
  return given
end
