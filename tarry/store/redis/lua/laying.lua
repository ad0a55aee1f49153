-- ARGV: a task, and an id. Gives those of its jobs a lane that come after the id, wait and have none: as many as can be
-- looked at in one go. Answers where to go on; nothing once all have one.
local task, after = ARGV[1], ARGV[2]
local on = lib.walk(after, 33, function(id, record, entry)
  local waits = not entry and lib.byte(record, 1) <= lib.READY
  if waits and lib.tail_in(record).task == task then lib.lay(id, record, nil) end
end)
lib.write_places()
if on == '' then lib.call('SREM', lib.LAYING, task) end
return on
