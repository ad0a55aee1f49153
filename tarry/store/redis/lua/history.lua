-- What was put and what ended: the journal, and its sums (`tarry/store/history`).
-- Keys: a list with the records that are not summed up yet; a number, how often they were summed up; a sorted set of
-- starts, all with score 0, each a resolution and a start (1 and 8 bytes); and for each start a hash of its sums, by
-- queue and task.

-- Adds a record to the journal. digits: 1 for each job that counts, else 0.
function lib.to_journal(record, digits)
  if record == '' or not string.find(digits, '1', 1, true) then return end
  if string.find(digits, '0', 1, true) then record = digits .. record end
  lib.call('RPUSH', lib.P .. 'journal', record)
end

-- take_journal: the oldest records.
-- Keys: reads journal, summed.
-- Arguments: how many at most.
-- Answer: how often the journal was summed up; the records.
-- Cost: two reads.
function lib.take_journal()
  return {lib.call('GET', lib.P .. 'summed') or '0', lib.call('LRANGE', lib.P .. 'journal', '0', ARGV[1] - 1)}
end

-- fold_journal: removes records and writes sums, unless the journal was summed up meanwhile. An empty one is deleted.
-- Keys: journal, summed, sums, and a hash for each start.
-- Arguments: how often the journal was summed up when the records were taken; how many records; then start, names and
-- sums in turn.
-- Answer: 1, or 0 if it was summed up meanwhile.
-- Cost: two writes, and two for each sum.
function lib.fold_journal()
  if (lib.call('GET', lib.P .. 'summed') or '0') ~= ARGV[1] then return 0 end
  lib.call('INCR', lib.P .. 'summed')
  lib.call('LTRIM', lib.P .. 'journal', ARGV[2], '-1')
  for at = 3, #ARGV, 3 do
    if ARGV[at + 2] == '' then
      lib.call('HDEL', lib.P .. 'sum:' .. ARGV[at], ARGV[at + 1])
    else
      lib.call('ZADD', lib.P .. 'sums', '0', ARGV[at])
      lib.call('HSET', lib.P .. 'sum:' .. ARGV[at], ARGV[at + 1], ARGV[at + 2])
    end
  end
  return 1
end

function lib.starts_of_sums() return lib.call('ZRANGEBYLEX', lib.P .. 'sums', ARGV[1], ARGV[2], 'LIMIT', '0', '100') end

-- read_sums: the sums of the next starts.
-- Keys: reads sums, and a hash for each start.
-- Arguments: from where and to where, as ZRANGEBYLEX has it.
-- Answer: start and its sums, which are names and sum in turn, in turn; at most 100 starts.
-- Cost: a read for each start.
function lib.read_sums()
  local found = {}
  for _, start in ipairs(lib.starts_of_sums()) do
    found[#found + 1], found[#found + 2] = start, lib.call('HGETALL', lib.P .. 'sum:' .. start)
  end
  return found
end

-- drop_sums: deletes the sums of the next starts.
-- Keys: sums, and a hash for each start.
-- Arguments: from where and to where, as ZRANGEBYLEX has it.
-- Answer: how many starts, at most 100; how many sums.
-- Cost: three commands for each start.
function lib.drop_sums()
  local starts, count = lib.starts_of_sums(), 0
  for _, start in ipairs(starts) do
    count = count + lib.call('HLEN', lib.P .. 'sum:' .. start)
    lib.call('DEL', lib.P .. 'sum:' .. start)
    lib.call('ZREM', lib.P .. 'sums', start)
  end
  return {#starts, count}
end
