-- RECORD_SETTLE
-- KEYS record          ARGV owner, fence, new state (c, t, u, or r to forget), retention ms, response or reason
-- Gives 1: settled so, now or by an earlier try | 0: not this claim's record any more. PEXPIRE first: a write that needs no
-- memory, so that a full server takes the others. Work that was done must not run again because its result isn't kept.
local found = redis.pcall('hmget', KEYS[1], 's', 'o', 'f', 'w')
if found.err then return found end
if not found[1] then return ARGV[3] == 'r' and 1 or 0 end
if found[2] ~= ARGV[1] or found[3] ~= ARGV[2] then return 0 end
if found[1] ~= 'i' then
  return found[1] == ARGV[3] and (redis.call('hget', KEYS[1], 'b') or '') == ARGV[5] and 1 or 0
end
if ARGV[3] == 'r' then
  redis.call('del', KEYS[1])
else
  redis.call('pexpire', KEYS[1], ARGV[4])
  redis.call('hset', KEYS[1], 's', ARGV[3], 'b', ARGV[5])
  redis.call('hdel', KEYS[1], 'u', 'k', 'a', 'w')
end
notify(found[4])
return 1
