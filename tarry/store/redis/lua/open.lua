-- ARGV: our schema. Answers the one that is there; if there is none, ours.
local there = lib.call('GET', lib.P .. 'schema')
if not there then
  lib.call('SET', lib.P .. 'schema', ARGV[1])
  there = ARGV[1]
end
return there
