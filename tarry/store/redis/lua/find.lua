-- ARGV: after, limit, states (a text of digits, or nothing), before, then pairs of what a job's queue, task or key must
-- be. Answers ids, records and entries of `run` in turn, and where to go on; nothing if there is no more.
local after, limit, states, before_ = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

local function matches(record, entry)
  local state = entry and lib.RUNNING or lib.byte(record, 1)
  if states ~= '' and not string.find(states, state, 1, true) then return false end
  if before_ then
    local since = entry and lib.sub(entry, 5, 12) or lib.since_of(record)
    if lib.parsed('>I8', since) >= before_ then return false end
  end
  if #ARGV == 4 then return true end
  local tail = lib.tail_in(record)
  for number = 5, #ARGV, 2 do
    if tail[ARGV[number]] ~= ARGV[number + 1] then return false end
  end
  return true
end

local found = {}
local narrow = states ~= '' or before_ or #ARGV > 4
local on = lib.walk(after, narrow and 33 or math.min(33, math.ceil(limit / 15)), function(id, record, entry)
  if matches(record, entry) then
    found[#found + 1], found[#found + 2], found[#found + 3] = id, record, entry
  end
  return #found == 3 * limit
end)
return {found, on}
