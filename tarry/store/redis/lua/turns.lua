-- Late jobs and those on time take turns, as `tarry.store.lanes.merged` does it. What waits in a queue and band stands
-- in several lines, each of which keeps its order: two open ones, and what the lanes of each task give in turn. A
-- candidate is a line and an entry of it.

function lib.late_line(queue, band) return lib.open_line(queue, band, true) end

-- The open line of late jobs, and that of those on time.
function lib.open_lines(want)
  local late = {key = lib.late_line(want.queue, want.band), queue = want.queue, late = true}
  return late, {key = lib.open_line(want.queue, want.band), queue = want.queue, late = false}
end

-- Reads so many of the first entries of a line.
function lib.seen(line, width, most)
  line.entries, line.width = lib.peek(line.key, width, most), width
  line.count = #line.entries / width
end

function lib.entry_of(line, number) return lib.sub(line.entries, (number - 1) * line.width + 1, number * line.width) end

-- The first candidates of an open line.
function lib.first_in(line, band, most)
  local found = {}
  lib.seen(line, lib.WIDTHS[band], most)
  for number = 1, line.count do found[number] = {line, lib.entry_of(line, number)} end
  return found
end

-- Where a head stands, by the entry that ends there in the text.
function lib.stand(head, text, last, band)
  head.rank = band == 'n' and 0 or lib.parsed('>I6', text, last - 29)
  head.due = lib.parsed('>I8', text, last - 23)
  head.odd = lib.byte(text, last) % 2 == 1
end

-- Goes on to the next candidate of a line; `one` is nil after the last.
function lib.move_on(head, band)
  head.at = head.at + 1
  head.one = head.line[head.at]
  if not head.one then return end
  local line, entry, width = head.one[1], head.one[2], lib.WIDTHS[band]
  lib.stand(head, entry, width, band)
  head.late = line.late
  if line.lane then head.late = lib.byte(entry, width + 1) == 1 end
end

-- Whether the one stands before the other: by rank and due alone.
function lib.ahead(a, b)
  if a.rank ~= b.rank then return a.rank < b.rank end
  return a.due < b.due
end

-- The first of those that are late, or of those that are not; on a tie, of the line that is named first.
function lib.first_of_kind(heads, late)
  local first
  for _, head in ipairs(heads) do
    if head.one and head.late == late and (not first or lib.ahead(head, first)) then first = head end
  end
  return first
end

-- Whose turn it is: of the same rank, the one kind's and then the other's. Who begins is drawn anew for each rank.
function lib.whose_turn(turns, late, on_time)
  if not late or not on_time then return late or on_time end
  if late.rank ~= on_time.rank then return late.rank < on_time.rank and late or on_time end
  if turns.rank == late.rank then turns.late = not turns.late else turns.late = late.odd ~= on_time.odd end
  turns.rank = late.rank
  return turns.late and late or on_time
end

-- Up to so many candidates from lines of these.
function lib.first_of(lines, band, most)
  local heads, given, turns = {}, {}, {}
  for number, line in ipairs(lines) do
    heads[number] = {line = line, at = 0}
    lib.move_on(heads[number], band)
  end
  while #given < most do
    local head = lib.whose_turn(turns, lib.first_of_kind(heads, true), lib.first_of_kind(heads, false))
    if not head then break end
    given[#given + 1] = head.one
    lib.move_on(head, band)
  end
  return given
end

-- A line as its own head, at the entry of that number; false after the last.
function lib.head_at(line, number, band)
  line.at = number
  if number > line.count then return false end
  lib.stand(line, line.entries, number * line.width, band)
  return line
end

-- How many of the first so many are late where nothing has a lane: as `first_of` has it, yet no entry is copied.
function lib.late_part(want, most)
  local late, on_time = lib.open_lines(want)
  lib.seen(late, lib.WIDTHS[want.band], most)
  lib.seen(on_time, lib.WIDTHS[want.band], most)
  if late.count == 0 or on_time.count == 0 then return late.count end
  local first, other, turns = lib.head_at(late, 1, want.band), lib.head_at(on_time, 1, want.band), {}
  for _ = 1, most do
    local line = lib.whose_turn(turns, first, other)
    if not line then break end
    if line == late then
      first = lib.head_at(late, late.at + 1, want.band)
    else
      other = lib.head_at(on_time, on_time.at + 1, want.band)
    end
  end
  return late.at - 1
end
