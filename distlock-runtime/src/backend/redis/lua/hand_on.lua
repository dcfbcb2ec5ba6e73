-- Gives a free lock to the first waiter that can be told: its value goes into the lock for a short claim, and its
-- owner token to its channel. Waiters that nobody listens for (polling clients) keep their places. An error here
-- leaves the lock free, and the waiters find it by asking.
local function hand_on(lock, queue, waiters)
  local now = now_ms()
  local skipped = 0
  for _ = 1, 100 do
    local owner, claim, channel, value = waiter_at(queue, waiters, skipped, now)
    if not owner then return end
    if not claim then
      leave(queue, waiters, owner)
    elseif channel ~= '-' and redis.call('publish', channel, owner) > 0 then
      leave(queue, waiters, owner)
      redis.call('set', lock, value, 'PX', claim)
      return
    else
      skipped = skipped + 1
    end
  end
end
