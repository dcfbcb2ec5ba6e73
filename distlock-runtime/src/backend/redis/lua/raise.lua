-- RAISE, after a grant of several servers: none of them may give a smaller token from now on.
-- KEYS counter          ARGV token
-- Gives 1. Repeat: the same.
local last = tonumber(redis.call('get', KEYS[1]) or 0)
if not last or last < tonumber(ARGV[1]) then redis.call('set', KEYS[1], ARGV[1]) end
return 1
