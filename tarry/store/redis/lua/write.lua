-- ARGV: a cell's name; 1 and what it was, or 0 and nothing; 1 and what it becomes, or 0 and nothing. Answers 1, or 0 if
-- it was not so.
local was = lib.call('HGET', lib.P .. 'cells', ARGV[1])
local seen_ = ARGV[2] == '1' and ARGV[3] or false
if was ~= seen_ then return 0 end
if ARGV[4] == '1' then
  lib.call('HSET', lib.P .. 'cells', ARGV[1], ARGV[5])
else
  lib.call('HDEL', lib.P .. 'cells', ARGV[1])
end
return 1
