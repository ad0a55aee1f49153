-- Named values, paused queues, and the schema's version.

-- kv_cas: sets or removes a named value if it is as it was seen.
-- Keys: cells.
-- Arguments: name; 1 and what it was, or 0 and nothing; 1 and what it becomes, or 0 and nothing.
-- Answer: 1, or 0 if it was not so.
-- Cost: one read, one write.
function lib.kv_cas()
  local was = lib.call('HGET', lib.P .. 'cells', ARGV[1])
  local expected = ARGV[2] == '1' and ARGV[3] or false
  if was ~= expected then return 0 end
  if ARGV[4] == '1' then
    lib.call('HSET', lib.P .. 'cells', ARGV[1], ARGV[5])
  else
    lib.call('HDEL', lib.P .. 'cells', ARGV[1])
  end
  return 1
end

-- pause: pauses a queue, or ends that.
-- Keys: paused; wakes for `w`.
-- Arguments: queue; 1: it is paused from now on, 0: it is not.
-- Answer: none.
-- Cost: one write.
function lib.pause()
  lib.call(ARGV[2] == '1' and 'SADD' or 'SREM', lib.P .. 'paused', ARGV[1])
  lib.wake('w')
end

-- get_schema: the schema's version; a new store gets ours.
-- Keys: schema.
-- Arguments: our version.
-- Answer: the version that is there.
-- Cost: one read, one write.
function lib.get_schema()
  local there = lib.call('GET', lib.P .. 'schema')
  if not there then
    lib.call('SET', lib.P .. 'schema', ARGV[1])
    there = ARGV[1]
  end
  return there
end
