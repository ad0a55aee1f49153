-- ARGV: a queue; 1: it is paused from now on, 0: it is not.
lib.call(ARGV[2] == '1' and 'SADD' or 'SREM', lib.P .. 'paused', ARGV[1])
lib.ring('w')
