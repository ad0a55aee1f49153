-- What was not all plain and new, one by one. Answers the positions and ids of those whose key another job holds.
local function insert_one(id, record, limits)
  if lib.call('HEXISTS', lib.JOBS, id) == 1 then return id end
  local tail = lib.tail_in(record)
  if tail.key then
    local lives = lib.holder(lib.key_field(tail.task, tail.key), id, lib.parsed('>I8', lib.since_of(record)))
    if lives then return lives end
    lib.take_hold(tail, id)
  end
  local lane = lib.lane_for(limits, tail.task, tail.lane)
  if lane ~= tail.lane then
    tail.lane = lane
    record = lib.with_tail(record, tail)
  end
  lib.call('HSET', lib.JOBS, id, record)
  lib.enlist(lib.place(id, record, tail))
  lib.enlist(lib.IDS, id)
  lib.tally(lib.byte(record, 1), tail.names, 1, lib.tail_size(tail, (select(2, lib.tail_at(record)))))
  return id
end

local held, limits = {}, lib.read_limits()
for number = 1, tonumber(ARGV[2]) do
  local id = ARGV[2 * number + 1]
  local lives = insert_one(id, ARGV[2 * number + 2], limits)
  if lives ~= id then
    held[#held + 1] = number - 1
    held[#held + 1] = lives
  end
end
lib.write_places()
local any = next(lib.tallies)
lib.write_tallies()
if any then lib.ring('w') end
return held
