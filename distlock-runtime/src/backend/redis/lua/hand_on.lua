-- Gives a free lock to the first waiter that can be told: its value goes into the lock for a short claim, and its
-- owner token to its channel. Waiters that nobody listens for (polling clients) keep their places until they are silent; one
-- of them that asked fairly keeps the lock free for itself. An error here leaves the lock free, and the waiters find it by
-- asking. Gives when the first of those that couldn't be told will be taken for dead, or now if there are
-- more to look at.
local function hand_on(lock, queue, waiters)
  local now = now_ms()
  local skipped, judged = 0, nil
  for _ = 1, 100 do
    local owner, claim, channel, value, live, fair = waiter_at(queue, waiters, skipped, now)
    if not owner then return judged end
    if not claim then
      leave(queue, waiters, owner)
    elseif tell(channel, owner) then
      leave(queue, waiters, owner)
      redis.call('set', lock, value, 'PX', claim)
      return nil
    elseif silent(live, now) then
      leave(queue, waiters, owner)
    else
      judged = judged or silent_from(live)
      if fair == 'f' then return judged end
      skipped = skipped + 1
    end
  end
  return judged or now
end
