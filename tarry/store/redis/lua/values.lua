-- Named values, paused queues, the schema's version, and what the account may not do.

-- Hash: the named values. Sorted set: their names in order, all of one score, so that a prefix is a range.
lib.CELLS = lib.P .. 'cells'
lib.CELL_NAMES = lib.P .. 'cellnames'

-- Sets a named value; nil: removes it.
function lib.set_cell(name, value)
  if value then
    lib.call('HSET', lib.CELLS, name, value)
    lib.call('ZADD', lib.CELL_NAMES, 0, name)
  else
    lib.call('HDEL', lib.CELLS, name)
    lib.call('ZREM', lib.CELL_NAMES, name)
  end
end

-- kv_cas: sets or removes a named value if it is as it was seen.
-- Keys: cells, cellnames.
-- Arguments: name; 1 and what it was, or 0 and nothing; 1 and what it becomes, or 0 and nothing.
-- Answer: 1, or 0 if it was not so.
-- Cost: one read, two writes.
function lib.kv_cas()
  local was = lib.call('HGET', lib.CELLS, ARGV[1])
  local expected = ARGV[2] == '1' and ARGV[3] or false
  if was ~= expected then return 0 end
  lib.set_cell(ARGV[1], ARGV[4] == '1' and ARGV[5] or nil)
  return 1
end

-- kv_list: the named values whose names begin so.
-- Keys: cells, cellnames.
-- Arguments: the prefix.
-- Answer: names and values in turn.
-- Cost: one read of the names and one of the values with this prefix.
function lib.kv_list()
  local names, answer = lib.call('ZRANGEBYLEX', lib.CELL_NAMES, '[' .. ARGV[1], '(' .. ARGV[1] .. '\255'), {}
  for number, value in ipairs(lib.fetch(lib.CELLS, names)) do
    if value then answer[#answer + 1], answer[#answer + 2] = names[number], value end
  end
  return answer
end

-- kv_page: the first named values of a range of names.
-- Keys: cells, cellnames.
-- Arguments: where the range begins and ends, as ZRANGEBYLEX takes it; how many.
-- Answer: names and values in turn.
-- Cost: one read of these names and one of their values.
function lib.kv_page()
  local answer = {}
  local names = lib.call('ZRANGEBYLEX', lib.CELL_NAMES, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
  for number, value in ipairs(lib.fetch(lib.CELLS, names)) do
    if value then answer[#answer + 1], answer[#answer + 2] = names[number], value end
  end
  return answer
end

-- kv_write: sets or removes named values, each if it is as it was seen.
-- Keys: cells, cellnames.
-- Arguments: of each value those of kv_cas.
-- Answer: of each 1 if it is as asked for now, else 0.
-- Cost: of each that of kv_cas.
function lib.kv_write()
  local answer = {}
  for at = 1, #ARGV, 5 do
    local is = lib.call('HGET', lib.CELLS, ARGV[at])
    local was = ARGV[at + 1] == '1' and ARGV[at + 2] or false
    local becomes = ARGV[at + 3] == '1' and ARGV[at + 4] or false
    if is == was and is ~= becomes then lib.set_cell(ARGV[at], becomes) end
    answer[#answer + 1] = (is == was or is == becomes) and 1 or 0
  end
  return answer
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

-- Hash: the schema's version, and the oldest one whose programs may use the store.
lib.SCHEMA = lib.P .. 'schema'

-- get_schema: the schema's version; a new store gets ours.
-- Keys: schema.
-- Arguments: our version, and the oldest that may use it.
-- Answer: both as they are there.
-- Cost: one read, two writes.
function lib.get_schema()
  if lib.call('HSETNX', lib.SCHEMA, 'version', ARGV[1]) == 1 then lib.call('HSET', lib.SCHEMA, 'oldest', ARGV[2]) end
  return lib.call('HMGET', lib.SCHEMA, 'version', 'oldest')
end

-- make_step: makes a version of the one before it.
-- Keys: schema, and those of the commands.
-- Arguments: the version, the oldest that may use it then, commands with words between spaces.
-- Answer: 1, or 0 if the version is there.
-- Cost: that of the commands.
function lib.make_step()
  if tonumber(lib.call('HGET', lib.SCHEMA, 'version')) >= tonumber(ARGV[1]) then return 0 end
  for number = 3, #ARGV do
    local words = {}
    for word in string.gmatch(ARGV[number], '%S+') do words[#words + 1] = word end
    lib.call(unpack(words))
  end
  lib.call('HSET', lib.SCHEMA, 'version', ARGV[1], 'oldest', ARGV[2])
  return 1
end

-- refused: which of these commands the account may not run, on keys and channels of the store.
-- Keys: jobs, which is not read.
-- Arguments: for each command its name (`CLIENT ID` for a part of one) and its arguments, KEY for a key or a channel.
-- All that it must have: a server looks for keys where they should be, and may crash where there is no argument.
-- Answer: the names of those that are refused; one that the server does not know is not.
-- Cost: reads nothing.
function lib.refused()
  local refused = {}
  for number = 1, #ARGV, 2 do
    local words = {}
    for word in string.gmatch(ARGV[number] .. ' ' .. ARGV[number + 1], '%S+') do
      words[#words + 1] = word == 'KEY' and lib.JOBS or word
    end
    local is_known, is_allowed = pcall(redis.acl_check_cmd, unpack(words))
    if is_known and not is_allowed then refused[#refused + 1] = ARGV[number] end
  end
  return refused
end
