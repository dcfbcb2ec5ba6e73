-- ENTER, a try that stands in the queue if the lock is busy.
-- KEYS lock, counter, tombstones, queue, waiters
-- ARGV value, ttl ms, how many tokens, owner, claim ms, channel or '-', longest queue
-- Gives the first token | -1: cancelled before | {holder's value, its remaining ms, 1 if in the queue}.
-- Repeat by the same owner: a held lease at its full length and out of the queue, or the same place for a new window.
local taken = take(KEYS[1], KEYS[3], ARGV[1], ARGV[2])
if taken == nil then return -1 end
if type(taken) == 'table' then return taken end
if taken == true then
  local token = draw(KEYS[2], ARGV[3])
  if type(token) == 'table' then redis.call('del', KEYS[1]) end
  pcall(leave, KEYS[4], KEYS[5], ARGV[4])
  return token
end
local now = now_ms()
for _ = 1, 100 do
  local owner, claim = waiter_at(KEYS[4], KEYS[5], 0, now)
  if not owner or claim or owner == ARGV[4] then break end
  leave(KEYS[4], KEYS[5], owner)
end
local queued = enqueue(KEYS[4], KEYS[5], ARGV[4], ARGV[5], ARGV[6], ARGV[1], tonumber(ARGV[7]), now)
return { taken, redis.call('pttl', KEYS[1]), queued }
