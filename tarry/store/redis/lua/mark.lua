-- ARGV: owner, then ids, epochs and progress in turn. Keeps it of those that the owner runs in that epoch.
local owner = ARGV[1]
for at = 2, #ARGV, 3 do
  local id, entry = ARGV[at], lib.call('HGET', lib.RUN, ARGV[at])
  if entry and lib.sub(entry, 1, 4) == ARGV[at + 1] and lib.owner_of(entry) == owner then
    local record = lib.call('HGET', lib.JOBS, id)
    local tail = lib.tail_in(record)
    lib.tally(lib.RUNNING, tail.names, 0, #ARGV[at + 2] - #tail.progress)
    tail.progress = ARGV[at + 2]
    lib.call('HSET', lib.JOBS, id, lib.with_tail(record, tail))
    lib.call('HSET', lib.RUN, id, lib.unusual(entry))
  end
end
lib.write_tallies()
lib.ring('f')
