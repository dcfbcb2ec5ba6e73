-- ACQUIRE, the first try of an owner that stands in no queue.
-- KEYS lock, counter, tombstone of this owner
-- ARGV value, ttl ms [, how many tokens if more than one]
-- Gives the first token | -1: cancelled before | {holder's value, its remaining ms}.
-- Repeat by the same owner: the lease at its full length, new tokens.
if redis.call('exists', KEYS[3]) == 1 then return -1 end
if not redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  local holder = redis.pcall('get', KEYS[1])
  if holder ~= ARGV[1] then
    if type(holder) == 'table' then return holder end
    return { holder, redis.call('pttl', KEYS[1]) }
  end
  redis.call('pexpire', KEYS[1], ARGV[2])
end
local token = draw(KEYS[2], ARGV[3])
if type(token) == 'table' then redis.call('del', KEYS[1]) end
return token
