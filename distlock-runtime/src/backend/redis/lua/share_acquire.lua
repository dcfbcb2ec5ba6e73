-- SHARE_ACQUIRE
-- KEYS lock, shares, queue, counter, tombstones, waiters of an exclusive lock
-- ARGV kind, limit, weight, owner, label, ttl ms, how many tokens or 0 to carry the last one, claim ms, channel or '-',
--      longest queue or 0 not to stand in it [, id of the explicit owner]
-- Gives the first token | -1: cancelled before | {a holder's value, ms until it is worth asking, 1 if in the queue}.
-- Repeat by the same owner: the share at its full length, new tokens (of an explicit owner: the one that its holds share), or
-- the same place for a new window.
local kind, weight, owner, id = ARGV[1], tonumber(ARGV[3]), ARGV[4], ARGV[11]
if redis.call('zscore', KEYS[5], owner) then return -1 end
local stands, failure = open()
if failure then return failure end
local judged
if stands then
  judged = settle(owner)
  if is_empty() then
    stands = nil
  elseif stands ~= kind or limit ~= tonumber(ARGV[2]) then
    local reply
    if judged == now and redis.call('exists', KEYS[2]) == 0 then
      -- Nobody has it, and of those who wait more may be dead than one call clears away.
      reply = in_the_way(judged)
      reply[3] = 0
    elseif stands ~= kind then
      reply = conflict('another kind of lock (' .. stands .. ')')
    else
      reply = { err = 'LIMITMISMATCH the semaphore has ' .. digits(limit) .. ' permits, not ' .. ARGV[2] }
    end
    keep(stands)
    return reply
  end
elseif redis.call('exists', KEYS[6]) == 1 then
  -- The queue of an exclusive lock that is free at this moment, or what is left of one.
  for _ = 1, PURGE do
    local waiter, live = waiter_at(KEYS[3], KEYS[6], 0, now)
    if not waiter then break end
    if live then return conflict('those who wait for an exclusive lock') end
    leave(KEYS[3], KEYS[6], waiter)
  end
  local more = head()
  if more then return { more .. ':', 0, 0 } end
end
if not stands then
  -- Shares of a lock that somebody deleted don't count. No write without need: after one, a full server takes all others.
  if redis.call('exists', KEYS[2]) == 1 then redis.call('del', KEYS[2]) end
  limit, used, window = tonumber(ARGV[2]), 0, 0
  owned, whose = kind == 'own', nil
end
local deadline = deadline_of(owner)
if not deadline and redis.call('zscore', KEYS[2], owner) then
  -- Its own is over, of more than one call clears away. Left there, it would count beside the next.
  drop({ owner })
end
local first = head()
if first and not stands then
  -- The line of such a lock: whoever lives asks again and keeps the place, the others are cleared away.
  judged = settle(owner)
  first = head()
end
-- One more hold of the explicit owner that has the lock waits for nobody: those in the line wait for it.
local again = owned and used > 0 and whose == id
if deadline or again or ((not first or first == owner) and fits(weight, id)) then
  local token = again and tonumber(redis.call('hget', KEYS[1], 't'))
  if token then
    -- drawn by an earlier hold
  elseif ARGV[7] == '0' then
    token = carry(KEYS[4])
  else
    token = draw(KEYS[4], ARGV[7])
  end
  if type(token) == 'table' then
    keep(kind)
    return token
  end
  if deadline then
    redis.call('zadd', KEYS[2], digits(math.max(deadline, now + ARGV[6])), owner)
  else
    if first then leave_line(owner) end
    hold(owner, weight, ARGV[5], now + ARGV[6], id)
    settle()
  end
  if owned then redis.call('hset', KEYS[1], 't', digits(token)) end
  keep(kind)
  return token
end
local queued = 0
local place = redis.call('zscore', KEYS[3], owner)
if ARGV[10] ~= '0' and (place or redis.call('zcard', KEYS[3]) < tonumber(ARGV[10])) then
  queued = 1
  window = now + WINDOW
  redis.call('hset', KEYS[1], owner, table.concat({ digits(window), ARGV[8], ARGV[9], ARGV[3], ARGV[5], id }, ' '))
  if not place then
    local tail = redis.call('zrange', KEYS[3], -1, -1, 'WITHSCORES')[2]
    redis.call('zadd', KEYS[3], (tail or 0) + 1, owner)
  end
  redis.call('pexpire', KEYS[3], WINDOW + 1)
end
local reply = in_the_way(judged)
keep(kind)
reply[3] = queued
return reply
