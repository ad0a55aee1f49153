-- Whose turn it is: late jobs and those on time take turns, and so do the lanes of a task. `tarry.store.rules.lanes`
-- has the same rules.
--
-- What waits in a queue and band stands in several lines, each of which keeps its order: two open ones, and what the
-- lanes of each task give in turn. A candidate is a line: the first time that a list has it, it stands for the first
-- entry of the line, then for the second.

function lib.late_line(queue, band) return lib.open_line(queue, band, true) end

-- The open line of late jobs, and that of those on time.
function lib.open_lines(want)
  local late = {key = lib.late_line(want.queue, want.band), queue = want.queue, late = true}
  return late, {key = lib.open_line(want.queue, want.band), queue = want.queue, late = false}
end

-- Reads so many of the first entries of a line.
function lib.peek_line(line, width, most)
  line.width = width
  line.entries, line.pages, line.is_all = lib.peek(line.key, width, most)
  line.count = #line.entries / width
end

-- Reads more of a line of which some entries were read.
function lib.peek_further(line, most)
  if not line.is_all then return lib.peek_line(line, line.width, most) end
  line.entries = lib.sub(lib.concat(line.pages), 1, most * line.width)
  line.count = #line.entries / line.width
end

-- The first candidates of an open line.
function lib.candidates_in(line, band, most)
  local found = {}
  lib.peek_line(line, lib.WIDTHS[band], most)
  for number = 1, line.count do found[number] = line end
  return found
end

-- Reads what a head is compared by from the entry that ends there in the text.
function lib.read_head(head, text, last, band)
  head.claim_order = band == 'n' and 0 or lib.parse('>I6', text, last - 29)
  head.due = lib.parse('>I8', text, last - 23)
  head.odd = lib.byte(text, last) % 2 == 1
end

-- Goes on to the next candidate of a list; `line` is nil after the last.
function lib.advance(head, band)
  head.at = head.at + 1
  local line, width = head.list[head.at], lib.WIDTHS[band]
  head.line = line
  if not line then return end
  local from = (line.seen or 0) * line.width
  line.seen = (line.seen or 0) + 1
  lib.read_head(head, line.entries, from + width, band)
  head.late = line.late
  if line.lane then head.late = lib.byte(line.entries, from + width + 1) == 1 end
end

-- Whether the one stands before the other: by priority and due alone.
function lib.is_ahead(a, b)
  if a.claim_order ~= b.claim_order then return a.claim_order < b.claim_order end
  return a.due < b.due
end

-- The first of those that are late, or of those that are not; on a tie, of the line that is named first.
function lib.first_of_kind(heads, late)
  local first
  for _, head in ipairs(heads) do
    if head.line and head.late == late and (not first or lib.is_ahead(head, first)) then first = head end
  end
  return first
end

-- The head whose turn it is: of one priority, late and on time alternate. Who begins is drawn anew for each priority.
function lib.whose_turn(turns, late, on_time)
  if not late or not on_time then return late or on_time end
  if late.claim_order ~= on_time.claim_order then return late.claim_order < on_time.claim_order and late or on_time end
  local goes_on = turns.claim_order == late.claim_order
  if goes_on then turns.late = not turns.late else turns.late = late.odd ~= on_time.odd end
  turns.claim_order = late.claim_order
  return turns.late and late or on_time
end

-- The only list of these that has candidates; nil if there are several, or none.
function lib.only_list(lists)
  local only
  for _, list in ipairs(lists) do
    if only and #list > 0 then return nil end
    if #list > 0 then only = list end
  end
  return only
end

-- Up to so many candidates from lists of these.
function lib.merge_by_turn(lists, band, most)
  local heads, given, turns, only = {}, {}, {}, lib.only_list(lists)
  -- No list has more than `most`.
  if only then return only end
  for number, list in ipairs(lists) do
    heads[number] = {list = list, at = 0}
    lib.advance(heads[number], band)
  end
  while #given < most do
    local head = lib.whose_turn(turns, lib.first_of_kind(heads, true), lib.first_of_kind(heads, false))
    if not head then break end
    given[#given + 1] = head.line
    lib.advance(head, band)
  end
  return given
end

-- A line as its own head, at the entry of that number; false after the last.
function lib.move_head(line, number, band)
  line.at = number
  if number > line.count then return false end
  lib.read_head(line, line.entries, number * line.width, band)
  return line
end

-- How many of the first so many are late where nothing has a lane: as `merge_by_turn` has it, yet no entry is copied.
function lib.late_share(want, most)
  local late, on_time = lib.open_lines(want)
  lib.peek_line(late, lib.WIDTHS[want.band], most)
  lib.peek_line(on_time, lib.WIDTHS[want.band], most)
  if late.count == 0 or on_time.count == 0 then return late.count end
  local first, other, turns = lib.move_head(late, 1, want.band), lib.move_head(on_time, 1, want.band), {}
  for _ = 1, most do
    local line = lib.whose_turn(turns, first, other)
    if not line then break end
    if line == late then
      first = lib.move_head(late, late.at + 1, want.band)
    else
      other = lib.move_head(on_time, on_time.at + 1, want.band)
    end
  end
  return late.at - 1
end

-- A claim looks only at lanes that are open. One that it finds full is closed, and opened again when one of its
-- attempts ends, its rate allows a start or its limit changes. `CLOSED` has, by task and lane, where such a lane is to
-- be opened: band 1, length 2, queue, one after another; `REOPEN_AT` has those that wait for a rate, by the time when
-- it lets one start.
function lib.close_lane(queue, band, task, lane, again)
  local name, place = task .. lib.SEPARATOR .. lane, band .. lib.pack('>I2', #queue) .. queue
  local places = lib.call('HGET', lib.CLOSED, name) or ''
  local at = 1
  while at <= #places and lib.sub(places, at, at + #place - 1) ~= place do
    at = at + 3 + lib.parse('>I2', places, at + 1)
  end
  if at > #places then lib.call('HSET', lib.CLOSED, name, places .. place) end
  if again then lib.call('ZADD', lib.REOPEN_AT, string.format('%.0f', again), name) end
  lib.call('ZREM', lib.open_lanes_key(queue, band, task), lane)
end

-- Opens a closed lane. name: its task and lane; places: where, as in `CLOSED`.
function lib.open_lane(name, places)
  local task, lane = string.match(name, '^([^' .. lib.SEPARATOR .. ']*)' .. lib.SEPARATOR .. '(.*)$')
  local at = 1
  while at <= #places do
    local band, length = lib.sub(places, at, at), lib.parse('>I2', places, at + 1)
    local queue = lib.sub(places, at + 3, at + 2 + length)
    if lib.call('EXISTS', lib.lane_line(queue, band, task, lane)) == 1 then
      lib.call('ZADD', lib.open_lanes_key(queue, band, task), 0, lane)
    end
    at = at + 3 + length
  end
  lib.call('HDEL', lib.CLOSED, name)
  lib.call('ZREM', lib.REOPEN_AT, name)
end

-- Opens those of the lanes of these names that are closed.
function lib.open_lanes(names)
  for number, places in ipairs(lib.fetch(lib.CLOSED, names)) do
    if places then lib.open_lane(names[number], places) end
  end
end

-- A lane is known by its name while anything waits in it: adds it to those that are, or removes it.
function lib.register_lane(key, group, lane)
  if lib.call('EXISTS', key) == 0 then return lib.forget_lanes(group.queue, group.band, group.task, {lane}) end
  group.added[1] = lane
  lib.register_added(group)
end

-- Something waits in those lanes of a group that are new in it.
function lib.register_added(group)
  local queue, band, task, names = group.queue, group.band, group.task, group.added
  group.added = {}
  -- All are known already, and so are their task and its queue.
  if lib.add_names(lib.lanes_key(queue, band, task), names) == 0 then return end
  lib.call('ZADD', lib.tasks_key(queue, band), '0', task)
  lib.call('SADD', lib.QUEUES, queue)
  if lib.call('EXISTS', lib.CLOSED) == 1 then names = lib.keep_closed(queue, band, task, names) end
  lib.add_names(lib.open_lanes_key(queue, band, task), names)
end

-- Adds names to a sorted set; answers how many are new in it.
function lib.add_names(key, names)
  local words, count = {}, 0
  for number, name in ipairs(names) do words[2 * number - 1], words[2 * number] = '0', name end
  for from = 1, #words, 2 * lib.BATCH do
    count = count + lib.call('ZADD', key, unpack(words, from, math.min(#words, from + 2 * lib.BATCH - 1)))
  end
  return count
end

-- Those of these lanes that are open; the others stay closed, also here.
function lib.keep_closed(queue, band, task, names)
  local full, open = {}, {}
  for number, lane in ipairs(names) do full[number] = task .. lib.SEPARATOR .. lane end
  for number, places in ipairs(lib.fetch(lib.CLOSED, full)) do
    if places then
      lib.close_lane(queue, band, task, names[number])
    else
      open[#open + 1] = names[number]
    end
  end
  return open
end

-- Nothing waits in these lanes any more.
function lib.forget_lanes(queue, band, task, names)
  local lanes = lib.lanes_key(queue, band, task)
  lib.call_in_batches('ZREM', lanes, names)
  lib.call_in_batches('ZREM', lib.open_lanes_key(queue, band, task), names)
  if lib.call('EXISTS', lanes) == 0 then lib.call('ZREM', lib.tasks_key(queue, band), task) end
end

-- At most so many lanes of a task are looked at in one claim, of which so many without room: those are closed, which
-- takes longer.
lib.MAX_EXAMINED, lib.MAX_CLOSED = 1000, 100
-- So many more than are needed are read first.
lib.SPARE = 10
-- By `turn_name`, the lane that was served last; and whether it had its turn in this claim.
lib.last_lanes, lib.served = {}, {}

-- What `TURNS` knows the turn of a task by. In each queue and band it has one of its own: lanes that have jobs in
-- another one only would move the turn away from those that wait here.
function lib.turn_name(want, task) return task .. lib.SEPARATOR .. want.band .. want.queue end

function lib.last_lane_of(want, task)
  local name = lib.turn_name(want, task)
  if lib.last_lanes[name] == nil then lib.last_lanes[name] = lib.read_turn(lib.call('HGET', lib.TURNS, name)).lane end
  return lib.last_lanes[name]
end

-- Names of lanes after the last one, then those up to it: at most so many, and some more.
function lib.lanes_after(key, last, most)
  if not last then return lib.call('ZRANGEBYLEX', key, '-', '+', 'LIMIT', 0, most) end
  local names = lib.call('ZRANGEBYLEX', key, '(' .. last, '+', 'LIMIT', 0, most)
  if #names == most then return names end
  for _, name in ipairs(lib.call('ZRANGEBYLEX', key, '-', '[' .. last, 'LIMIT', 0, most)) do
    names[#names + 1] = name
  end
  return names
end

-- A lane as a line that has room for so many, which `level` counts (false: nothing does).
function lib.lane_of(group, lane, room, level)
  -- With all fields at once: a table that grows takes longer.
  return {
    key = group.prefix .. lane, group = group, task = group.task, lane = lane, by = group.by, level = level,
    room = room, width = 0, count = 0, entries = '', pages = false, is_all = false, taken = false, rated = false,
  }
end

-- The lanes of a task that a want may take from, with what counts their jobs.
function lib.wanted_lanes(limits, want, task)
  local group = lib.lane_group(want.queue, want.band, task)
  group.turn_name = group.turn_name or lib.turn_name(want, task)
  group.by = group.by or limits and lib.counted_by(limits, lib.join_names(want.queue, task), true)
  return group
end

-- Those of these lanes with room, and how much: at most `enough`.
function lib.roomy_lanes(limits, want, task, names, most, enough, now)
  local found, count, full, group = {}, 0, 0, lib.wanted_lanes(limits, want, task)
  local by = group.by and group.by.prefix and group.by
  for number, lane in ipairs(names) do
    if count == enough then break end
    if number > lib.MAX_EXAMINED or full == lib.MAX_CLOSED then
      -- Not all were looked at, so it is worth coming again at once.
      lib.retry_at = 0
      break
    end
    local left, again, level = most, nil, false
    if by then
      if number % lib.READ_AT_ONCE == 1 then lib.read_some_levels(by, names, number) end
      level = by.lanes[lane]
      left, again = lib.room(level, most, now)
    end
    if left > 0 then
      count = count + 1
      found[count] = lib.lane_of(group, lane, left, level)
    else
      lib.close_lane(want.queue, want.band, task, lane, again)
      full = full + 1
    end
  end
  return found
end

-- So many levels of lanes are read at once.
lib.READ_AT_ONCE = 100
function lib.read_some_levels(by, names, first)
  local some = {}
  for number = first, math.min(#names, first + lib.READ_AT_ONCE - 1) do some[names[number]] = true end
  lib.read_lane_levels(by, some)
end

-- Up to so many lanes with room, from the one whose turn it is.
function lib.lanes_in_turn(limits, want, task, most, now)
  local open, last = lib.open_lanes_key(want.queue, want.band, task), lib.last_lane_of(want, task)
  local few = math.min(most + lib.SPARE, lib.MAX_EXAMINED)
  local names = lib.lanes_after(open, last, few)
  local lanes = lib.roomy_lanes(limits, want, task, names, most, most, now)
  if #lanes == most or #names < few then return lanes end
  names = lib.lanes_after(open, last, lib.MAX_EXAMINED + 1)
  return lib.roomy_lanes(limits, want, task, names, most, most, now)
end

-- Candidates of a task's lanes: one from each in turn, until there are so many, or none is left.
function lib.deal(limits, want, task, most, now)
  most = lib.room_under(limits, 'task:' .. task, most, now)
  if most == 0 then return {} end
  local each = limits and limits['each:' .. task]
  if each and each.has_weights then return lib.deal_by_weight(limits, each, want, task, most, now) end
  local lanes, width, total = lib.lanes_in_turn(limits, want, task, most, now), lib.WIDTHS[want.band] + 1, 0
  local fair = math.ceil(most / math.max(1, #lanes))
  for _, line in ipairs(lanes) do
    lib.peek_line(line, width, math.min(line.room, fair))
    total = total + line.count
  end
  if total < most then
    -- Some gave less than their part: what they leave is the others'.
    for _, line in ipairs(lanes) do
      if line.count == fair then lib.peek_further(line, math.min(line.room, fair + most - total)) end
    end
  end
  return lib.deal_equally(lanes, most)
end

-- One candidate from each of these lanes in turn.
function lib.deal_equally(lanes, most)
  local given, turn = {}, 1
  repeat
    local had = #given
    for _, line in ipairs(lanes) do
      if line.count >= turn and #given < most then given[#given + 1] = line end
    end
    turn = turn + 1
  until #given == had
  return given
end

-- Candidates of an open line: so many of its first.
function lib.open_candidates(line, band, most, migrating)
  if migrating and not lib.migrate_first(line.key, lib.WIDTHS[band], most, migrating) then
    -- More than can be done at once: what stands in this line comes next time.
    lib.retry_at = 0
    return {}
  end
  return lib.candidates_in(line, band, most)
end

-- What a want may take, in the order in which it is to be taken.
function lib.candidates(limits, want, count, now, migrating)
  local tasks = lib.call('ZRANGE', lib.tasks_key(want.queue, want.band), 0, -1)
  local late, on_time = lib.open_lines(want)
  if #tasks == 0 and lib.call('EXISTS', late.key, on_time.key) == 0 then return {} end
  late.by = limits and lib.counted_by(limits, lib.join_names(want.queue, ''), false)
  on_time.by = late.by
  local most = lib.room_under(limits, 'queue:' .. want.queue, count, now)
  if most == 0 then return {} end
  local lists = {
    lib.open_candidates(late, want.band, most, migrating), lib.open_candidates(on_time, want.band, most, migrating),
  }
  tasks = migrating and lib.call('ZRANGE', lib.tasks_key(want.queue, want.band), 0, -1) or tasks
  for _, task in ipairs(tasks) do lists[#lists + 1] = lib.deal(limits, want, task, most, now) end
  return lib.merge_by_turn(lists, want.band, most)
end

-- A job of this lane starts.
function lib.note_turn(line)
  local name = line.group.turn_name
  local turn = lib.weighted[name]
  if turn then
    lib.start_in_turn(turn, line)
  else
    lib.last_lanes[name], lib.served[name] = line.lane, true
  end
end

-- Takes the chosen candidates out of their lines; adds their ids.
function lib.remove_chosen(want, given, ids, limits, now)
  local lines, width = {}, lib.WIDTHS[want.band]
  for _, line in ipairs(given) do
    if not line.taken then
      lines[#lines + 1], line.taken = line, 0
    end
    local last = line.taken * line.width + width
    line.taken = line.taken + 1
    ids[#ids + 1] = lib.sub(line.entries, last - 15, last)
    if line.lane then lib.note_turn(line) end
  end
  if limits then lib.count_starts(limits, want, lines, now) end
  local emptied = {}
  for _, line in ipairs(lines) do
    if lib.take_peeked(line.key, line.pages, line.is_all, line.taken * line.width) then
      local of = lib.get_list(emptied, line.task or false)
      of[#of + 1] = line
    end
  end
  for task, some in pairs(emptied) do lib.remove_emptied(want, task, some) end
end

-- The jobs that were taken from these lines start.
function lib.count_starts(limits, want, lines, now)
  local counts = {}
  for _, line in ipairs(lines) do
    if line.level then lib.raise_level(line.level, now, line.taken) end
    counts[line.by] = (counts[line.by] or 0) + line.taken
  end
  for by, count in pairs(counts) do lib.raise_levels(by.shared, now, count) end
  for _, line in ipairs(lines) do
    if line.extra_cost then
      lib.correct_levels(lib.levels_of(limits, want.queue, line.task or '', line.lane), now, line.extra_cost)
    end
  end
end

-- Removes lines of which nothing is left. task: false: they are open ones.
function lib.remove_emptied(want, task, lines)
  local keys, lanes = {}, {}
  for number, line in ipairs(lines) do keys[number], lanes[number] = line.key, line.lane end
  for from = 1, #keys, lib.BATCH do lib.call('DEL', unpack(keys, from, math.min(#keys, from + lib.BATCH - 1))) end
  if task then lib.forget_lanes(want.queue, want.band, task, lanes) end
end

-- Opens lanes whose rate lets one start by now; `retry_at` gets the time of the next.
function lib.reopen_due_lanes(now)
  local first = lib.call('ZRANGE', lib.REOPEN_AT, 0, 0, 'WITHSCORES')[2]
  if first and tonumber(first) <= now then
    local until_now = string.format('%.0f', now)
    lib.open_lanes(lib.call('ZRANGEBYSCORE', lib.REOPEN_AT, '-inf', until_now, 'LIMIT', 0, lib.MAX_CLOSED))
    first = lib.call('ZRANGE', lib.REOPEN_AT, 0, 0, 'WITHSCORES')[2]
  end
  if first then lib.retry_at = tonumber(first) > now and tonumber(first) or 0 end
end

-- Whether jobs wait that start as soon as others of their limits have ended.
lib.is_held_back = false

-- As `choose_unlimited`, where there are limits or lanes.
function lib.choose_limited(limits, wants, limit, now, ids)
  local migrating, exhausted = lib.migrating_tasks(), {}
  lib.reopen_due_lanes(now)
  for _, fill in ipairs({false, true}) do
    for _, want in ipairs(wants) do
      local most, place = math.min(fill and limit or want.count, limit - #ids), want.band .. want.queue
      -- What gave less than asked for has no more.
      if most > 0 and not exhausted[place] then
        local given = lib.candidates(limits, want, most, now, migrating)
        exhausted[place] = #given < most
        lib.remove_chosen(want, lib.within_rates(limits, want, given, now), ids, limits, now)
      end
    end
  end
  lib.is_held_back = #ids < limit and not lib.retry_at and lib.has_lanes(wants)
  for name, turn in pairs(lib.weighted) do lib.call('HSET', lib.TURNS, name, lib.turn_text(turn)) end
  for name in pairs(lib.served) do lib.call('HSET', lib.TURNS, name, lib.lane_text(lib.last_lanes[name])) end
end
