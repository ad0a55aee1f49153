-- prune: forgets finished jobs whose time has come, and others of queues that keep too much.
-- Keys: finished and its lines, jobs, ends, ids, counts, sizes, weights, keys, levels.
-- Arguments: now, how many to forget at most, how many to look at at most, the entry after which to begin (none: at the
-- first), the bytes that a queue may keep, then queues and what they may keep in turn.
-- Answer: how many it has forgotten, and where it stopped; nothing if it came to the end.
-- Cost: two reads a job that it looks at, three reads a queue.
function lib.prune()
  local now, limit, left = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
  local lines, last = lib.finished_lines(now, ARGV[4]), ''
  while lines[1] and left > 0 and #lib.pruned_ids < limit do
    local line = table.remove(lines, 1)
    last, left = line.entry, left - 1
    lib.prune_entry(line, last, now)
    line.at = line.at + 24
    local has_more = line.at <= #line.page or lib.turn_page(line, '')
    if has_more and lib.may_go(line, now) then lib.insert_line(lines, line) end
  end
  lib.call_in_batches('HDEL', lib.JOBS, lib.pruned_ids)
  lib.call_in_batches('HDEL', lib.ENDS, lib.pruned_ids)
  lib.write_lines()
  lib.write_tallies()
  lib.prune_levels(now)
  return {#lib.pruned_ids, lines[1] and last or ''}
end

lib.pruned_ids = {}

-- The lines of finished jobs where something may have to go, by their first entries.
function lib.finished_lines(now, after)
  local lines, allowed = {}, {}
  for at = 6, #ARGV, 2 do allowed[ARGV[at]] = tonumber(ARGV[at + 1]) end
  for _, queue in ipairs(lib.call('SMEMBERS', lib.FINISHED)) do
    local line = {queue = queue, key = lib.finished_line(queue), allowed = allowed[queue] or tonumber(ARGV[5])}
    line.kept = tonumber(lib.call('HGET', lib.WEIGHTS, queue) or 0)
    if lib.turn_page(line, after) then
      if lib.may_go(line, now) then lib.insert_line(lines, line) end
    elseif after == '' then
      lib.call('SREM', lib.FINISHED, queue)
    end
  end
  return lines
end

-- The next page of a line, or the first one with an entry after that one; false: there is none.
function lib.turn_page(line, after)
  local page
  if line.page then
    page = lib.call('ZRANGEBYLEX', line.key, '(' .. line.page, '+', 'LIMIT', '0', '1')[1]
    line.at = 1
  else
    page = after ~= '' and lib.page_with(line.key, after) or lib.call('ZRANGE', line.key, '0', '0')[1]
    line.at = page and after ~= '' and lib.bytes_before(24, page, after) + 1 or 1
    if page and lib.sub(page, line.at, line.at + 23) == after then line.at = line.at + 24 end
  end
  line.page = page
  return page and (line.at <= #page or lib.turn_page(line, after))
end

-- Whether anything of the line may have to go from its entry on; what follows is neither older nor more.
function lib.may_go(line, now)
  line.entry = lib.sub(line.page, line.at, line.at + 23)
  local keep_until = lib.sub(line.entry, 1, 8)
  return keep_until ~= lib.FOREVER and line.kept > line.allowed or lib.parse('>I8', keep_until) <= now
end

-- Puts a line where its entry belongs.
function lib.insert_line(lines, line)
  local low, high = 1, #lines + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if lib.less(lines[middle].entry, line.entry) then low = middle + 1 else high = middle end
  end
  table.insert(lines, low, line)
end

-- Forgets the job of the entry. Stays: a young one in a queue that keeps no more than it may, or that still holds its
-- key.
function lib.prune_entry(line, entry, now)
  local id, is_old = lib.sub(entry, 9), lib.parse('>I8', entry) <= now
  local record = lib.fetch_records({id})[1]
  local at, note = lib.tail_position(record)
  local tail = lib.parse_tail(record, at)
  local holds_key = tail.key and lib.parse('>I8', tail.key_held_until) > now
  if not is_old and (line.kept <= line.allowed or holds_key) then return end
  local size = lib.tail_size(tail, note)
  line.kept = line.kept - size
  lib.release_key(tail, id)
  lib.tally(lib.byte(record, 1), tail.names, -1, -size)
  lib.add_weight(line.queue, lib.keep_until_of(record), -size)
  lib.remove_from_line(line.key, entry)
  lib.remove_from_line(lib.IDS, id)
  lib.each_label(lib.remove_from_line, tail, id)
  lib.pruned_ids[#lib.pruned_ids + 1] = id
end

-- Forgets levels of lanes that are not used any more: a few a call, as the server does it with keys that expire.
function lib.prune_levels(now)
  local some = lib.call('HRANDFIELD', lib.LEVELS, 100, 'WITHVALUES')
  for at = 1, #some, 2 do
    local running, next_start = string.match(some[at + 1], '^(%S+) (%S+)$')
    if lib.sub(some[at], 1, 5) == 'each:' and running == '0' and tonumber(next_start) <= now then
      lib.call('HDEL', lib.LEVELS, some[at])
    end
  end
end
