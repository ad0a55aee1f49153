-- ARGV: now, how many at most, the bytes that a queue may keep, then queues and what they may keep in turn. Forgets
-- finished jobs whose time has come, and the earliest of queues that keep too much; answers how many.
local now, limit, most = tonumber(ARGV[1]), tonumber(ARGV[2]), {}
for at = 4, #ARGV, 2 do most[ARGV[at]] = tonumber(ARGV[at + 1]) end

local function too_old(entry) return lib.parsed('>I8', entry) <= now end

local function size_of(record)
  local names, size, at = lib.plain(record)
  if names then return size, false end
  local note
  at, note = lib.tail_at(record)
  local tail = lib.tail_of(record, at)
  return lib.tail_size(tail, note), tail.key and lib.parsed('>I8', tail.holds) > now
end

-- Of one queue, up to `limit` that are to go, in their order.
local function doomed_of(queue, doomed)
  local key, kept = lib.finished_line(queue), tonumber(lib.call('HGET', lib.WEIGHTS, queue) or 0)
  local allowed, from, count = most[queue] or tonumber(ARGV[3]), 0, 0
  while count < limit do
    local page = lib.call('ZRANGE', key, from, from)[1]
    if not page or (kept <= allowed and not too_old(page)) then break end
    local ids = {}
    lib.add_ids(ids, 24, page)
    for number, record in ipairs(lib.records_of(ids)) do
      local entry = lib.sub(page, number * 24 - 23, number * 24)
      local size, keeps = size_of(record)
      if count < limit and (too_old(entry) or (kept > allowed and not keeps)) then
        kept, count = kept - size, count + 1
        doomed[#doomed + 1] = {entry, record, queue}
      end
    end
    from = from + 1
  end
  return from
end

local function forget_job(entry, record, queue)
  local id = lib.sub(entry, 9)
  local at, note = lib.tail_at(record)
  local tail = lib.tail_of(record, at)
  lib.let_go(tail, id)
  local size = lib.tail_size(tail, note)
  lib.tally(lib.byte(record, 1), tail.names, -1, -size)
  lib.weigh(queue, -size)
  lib.drop(lib.finished_line(queue), entry)
  lib.drop(lib.IDS, id)
  return id
end

local doomed, gone = {}, {}
for _, queue in ipairs(lib.call('SMEMBERS', lib.FINISHED)) do
  if limit > 0 and doomed_of(queue, doomed) == 0 and lib.call('EXISTS', lib.finished_line(queue)) == 0 then
    lib.call('SREM', lib.FINISHED, queue)
  end
end
if #doomed > limit then table.sort(doomed, function(a, b) return lib.less(a[1], b[1]) end) end
for number = 1, math.min(#doomed, limit) do gone[number] = forget_job(unpack(doomed[number])) end
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
return #gone
