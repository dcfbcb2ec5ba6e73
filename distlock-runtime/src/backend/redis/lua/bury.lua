-- Leaves a tombstone for an owner whose acquisition was cancelled. Gives an error table if the server refuses.
local function bury(tombstones, owner, life, now)
  local mark = redis.pcall('zadd', tombstones, string.format('%.0f', now + life), owner)
  if type(mark) == 'table' then return mark end
  redis.call('zremrangebyscore', tombstones, '-inf', string.format('(%.0f', now))
  redis.call('pexpire', tombstones, string.format('%.0f', math.max(redis.call('pttl', tombstones), tonumber(life))))
end
