-- FAIR, a try that passes nobody who waits.
-- KEYS lock, counter, tombstones, queue, waiters
-- ARGV value, ttl ms, how many tokens, owner, claim ms, channel or '-', longest queue or 0 not to stand in it
-- Gives the first token | -1: cancelled before | {value in the way, ms until it is worth asking, 1 if in the queue}.
-- Repeat by the same owner: a held lease at its full length at least and out of the queue, or the same place for a new window.
if redis.call('zscore', KEYS[3], ARGV[4]) then return -1 end
local now = now_ms()
local holder = redis.pcall('get', KEYS[1])
if type(holder) == 'table' then return holder end
if holder and redis.call('zscore', KEYS[3], string.sub(holder, 1, 32)) then
  redis.call('del', KEYS[1])
  holder = false
end
local first, live, channel, value, judged
for _ = 1, 100 do
  first, live, channel, value = waiter_at(KEYS[4], KEYS[5], 0, now)
  if not first or live or first == ARGV[4] then break end
  leave(KEYS[4], KEYS[5], first)
end
if not holder and first and first ~= ARGV[4] then
  local done, at = pcall(hand_on, KEYS[1], KEYS[4], KEYS[5])
  if done then judged = at end
  holder = redis.call('get', KEYS[1])
  first, live, channel, value = waiter_at(KEYS[4], KEYS[5], 0, now)
end
if holder == ARGV[1] or not holder and (not first or first == ARGV[4]) then
  local token = draw(KEYS[2], ARGV[3])
  if type(token) ~= 'table' then
    if holder ~= ARGV[1] then
      redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
    elseif redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then
      redis.call('pexpire', KEYS[1], ARGV[2])
    end
    leave(KEYS[4], KEYS[5], ARGV[4])
  end
  return token
end
local remaining
if holder then remaining = redis.call('pttl', KEYS[1]) else remaining = math.max(0, (judged or now + WINDOW) - now) end
local queued = enqueue(KEYS[4], KEYS[5], ARGV[4], ARGV[5] .. 'f', ARGV[6], ARGV[1], tonumber(ARGV[7]), now)
return { holder or value or '-', remaining, queued }
