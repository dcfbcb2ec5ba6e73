-- Whether the lock is held by this value from now on: true | the value of another holder | an error table |
-- nil: this acquisition was cancelled before. A holder whose acquisition was cancelled is a late attempt that nobody
-- waits for: the lock is free. One that is this value's own gets its full ttl again, if it has less: a repeat that comes
-- late must not undo an extension.
local function take(lock, tombstones, value, ttl)
  local holder = redis.pcall('get', lock)
  if redis.call('zscore', tombstones, string.sub(value, 1, 32)) then
    if holder == value then redis.call('del', lock) end
    return nil
  end
  if type(holder) == 'table' then return holder end
  if holder == value then
    if redis.call('pttl', lock) < tonumber(ttl) then redis.call('pexpire', lock, ttl) end
  elseif not holder or redis.call('zscore', tombstones, string.sub(holder, 1, 32)) then
    redis.call('set', lock, value, 'PX', ttl)
  else
    return holder
  end
  return true
end
