local lib = {call = redis.call, P = string.sub(KEYS[1], 1, -5)}
