-- ARGV: now, how many to forget at most, how many to look at at most, the entry after which to begin (none: at the
-- first), the bytes that a queue may keep, then queues and what they may keep in turn. Goes through finished jobs in
-- their order, and forgets those whose time has come, and others of queues that keep too much. Answers how many, and
-- where it stopped; nothing if it came to the end.
local now, limit, left, after, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], {}
for at = 6, #ARGV, 2 do most[ARGV[at]] = tonumber(ARGV[at + 1]) end

local function too_old(entry) return lib.parsed('>I8', entry) <= now end

-- The next page of a queue, from its first entry on that comes after the last one seen; false: there is none.
local function turn_page(line)
  local page
  if line.page then
    page = lib.call('ZRANGEBYLEX', line.key, '(' .. line.page, '+', 'LIMIT', 0, 1)[1]
    line.at = 1
  else
    page = after ~= '' and lib.page_with(line.key, after) or lib.call('ZRANGE', line.key, 0, 0)[1]
    line.at = page and after ~= '' and lib.before(24, page, after) + 1 or 1
    if page and lib.sub(page, line.at, line.at + 23) == after then line.at = line.at + 24 end
  end
  line.page = page
  return page and (line.at <= #page or turn_page(line))
end

-- Whether anything of that queue may have to go from its entry on; what follows is neither older nor more.
local function wanted(line)
  line.entry = lib.sub(line.page, line.at, line.at + 23)
  return line.kept > line.allowed or too_old(line.entry)
end

-- Puts a queue where its entry belongs.
local function line_up(lines, line)
  local low, high = 1, #lines + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if lib.less(lines[middle].entry, line.entry) then low = middle + 1 else high = middle end
  end
  table.insert(lines, low, line)
end

local function queues_in_order()
  local lines = {}
  for _, queue in ipairs(lib.call('SMEMBERS', lib.FINISHED)) do
    local line = {queue = queue, key = lib.finished_line(queue), allowed = most[queue] or tonumber(ARGV[5])}
    line.kept = tonumber(lib.call('HGET', lib.WEIGHTS, queue) or 0)
    if turn_page(line) then
      if wanted(line) then line_up(lines, line) end
    elseif after == '' then
      lib.call('SREM', lib.FINISHED, queue)
    end
  end
  return lines
end

local gone = {}

-- Forgets the job of the entry, unless it is young and the queue keeps no more than it may, or nobody else may have its
-- key yet.
local function look_at(line, entry)
  local id, old = lib.sub(entry, 9), too_old(entry)
  local record = lib.records_of({id})[1]
  local at, note = lib.tail_at(record)
  local tail = lib.tail_of(record, at)
  if not old and (line.kept <= line.allowed or (tail.key and lib.parsed('>I8', tail.holds) > now)) then return end
  local size = lib.tail_size(tail, note)
  line.kept = line.kept - size
  lib.let_go(tail, id)
  lib.tally(lib.byte(record, 1), tail.names, -1, -size)
  lib.weigh(line.queue, -size)
  lib.drop(line.key, entry)
  lib.drop(lib.IDS, id)
  gone[#gone + 1] = id
end

local lines, last = queues_in_order(), ''
while lines[1] and left > 0 and #gone < limit do
  local line = table.remove(lines, 1)
  last, left = line.entry, left - 1
  look_at(line, last)
  line.at = line.at + 24
  if (line.at <= #line.page or turn_page(line)) and wanted(line) then line_up(lines, line) end
end
lib.in_parts('HDEL', lib.JOBS, gone)
lib.in_parts('HDEL', lib.ENDS, gone)
lib.write_places()
lib.write_tallies()
-- Levels of keys that are not used any more: a few a call, as the server itself does it with keys that expire.
local some = lib.call('HRANDFIELD', lib.LEVELS, 100, 'WITHVALUES')
for at = 1, #some, 2 do
  local running, next_ = string.match(some[at + 1], '^(%S+) (%S+)$')
  if lib.sub(some[at], 1, 5) == 'each:' and running == '0' and tonumber(next_) <= now then
    lib.call('HDEL', lib.LEVELS, some[at])
  end
end
return {#gone, lines[1] and last or ''}
