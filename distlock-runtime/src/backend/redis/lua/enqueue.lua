-- Enters an owner at the end of the queue, or keeps its place for another window. Gives 1, or 0 if the queue is full.
local function enqueue(queue, waiters, owner, claim, channel, value, longest, now)
  local queued = redis.call('zscore', queue, owner)
  if not queued and redis.call('zcard', queue) >= longest then return 0 end
  local entry = table.concat({ string.format('%.0f', now + WINDOW), claim, channel, value }, ' ')
  redis.call('hset', waiters, owner, entry)
  redis.call('pexpire', waiters, WINDOW * 2)
  if not queued then
    local tail = redis.call('zrange', queue, -1, -1, 'WITHSCORES')[2]
    redis.call('zadd', queue, (tail or 0) + 1, owner)
  end
  redis.call('pexpire', queue, WINDOW * 2)
  return 1
end
