-- FORCE_RELEASE
-- KEYS lock, queue, waiters          ARGV '1' if any string is a lock's value (raw keys), else '0'
-- Gives {value, its remaining ms} that was removed | nil: it was free | -1: not a lock, nothing changed.
local holder = redis.pcall('get', KEYS[1])
if not holder then return false end
if type(holder) == 'table' then return holder end
if ARGV[1] == '0' then
  if string.sub(holder, 33, 33) ~= ':' or string.find(string.sub(holder, 1, 32), '[^0-9a-f]') then return -1 end
end
local remaining = redis.call('pttl', KEYS[1])
redis.call('del', KEYS[1])
if redis.call('exists', KEYS[2]) == 1 then pcall(hand_on, KEYS[1], KEYS[2], KEYS[3]) end
return { holder, remaining }
