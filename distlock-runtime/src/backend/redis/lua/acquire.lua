-- ACQUIRE, where the plain form of docs/wire.md has failed or may not be used.
-- KEYS lock, counter, tombstones
-- ARGV value, ttl ms [, how many tokens if more than one]
-- Gives the first token | -1: cancelled before | {holder's value, its remaining ms}.
-- Repeat by the same owner: the lease at its full length, new tokens.
local taken = take(KEYS[1], KEYS[3], ARGV[1], ARGV[2])
if taken == nil then return -1 end
if type(taken) == 'table' then return taken end
if taken ~= true then return { taken, redis.call('pttl', KEYS[1]) } end
local token = draw(KEYS[2], ARGV[3])
if type(token) == 'table' then redis.call('del', KEYS[1]) end
return token
