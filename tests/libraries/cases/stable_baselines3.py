"""stable-baselines3: agents that learn for a few steps, on gymnasium's own environments."""

from __future__ import annotations

import tempfile

import gymnasium
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy


def _small():
    return {"policy_kwargs": {"net_arch": [8]}, "seed": 0}


def _weights(agent):
    return dict(list(agent.policy.state_dict().items())[:4])


def ppo(device):
    agent = PPO("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=16, n_epochs=2, device=device, **_small())
    agent.learn(64)
    return _weights(agent)


def a2c(device):
    agent = A2C("MlpPolicy", make_vec_env("CartPole-v1", 2, seed=0), n_steps=8, device=device, **_small())
    agent.learn(64)
    mean, _ = evaluate_policy(agent, agent.get_env(), n_eval_episodes=2)
    return {**_weights(agent), "reward": mean}


def dqn(device):
    agent = DQN(
        "MlpPolicy", "CartPole-v1", learning_starts=16, batch_size=8, device=device, buffer_size=200, **_small()
    )
    agent.learn(48)
    return _weights(agent)


def continuous(device):
    found = {}
    for kind in (SAC, TD3, DDPG):
        agent = kind(
            "MlpPolicy", "Pendulum-v1", learning_starts=8, batch_size=8, device=device, buffer_size=100, **_small()
        )
        agent.learn(14)
        found[kind.__name__] = _weights(agent)
    return found


def saved_and_loaded(device):
    agent = PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=8, n_epochs=1, device=device, **_small())
    agent.learn(16)
    with tempfile.TemporaryDirectory() as folder:
        agent.save(f"{folder}/agent")
        again = PPO.load(f"{folder}/agent", device=device)
    seen = agent.get_env().reset()
    return {
        **_weights(again),
        "action": again.predict(seen, deterministic=True)[0],
        "same": again.predict(seen, deterministic=True)[0] == agent.predict(seen, deterministic=True)[0],
    }


class _Dots(gymnasium.Env):
    """Pictures of a dot, which is to be named."""

    observation_space = spaces.Box(0, 255, (1, 36, 36), dtype="uint8")
    action_space = spaces.Discrete(2)

    def _see(self):
        import numpy as np

        self.left = bool(self.np_random.integers(2))
        picture = np.zeros((1, 36, 36), dtype="uint8")
        picture[0, 18, 9 if self.left else 27] = 255
        return picture

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return self._see(), {}

    def step(self, action):
        reward = float((action == 0) == self.left)
        self.n += 1
        return self._see(), reward, self.n >= 8, False, {}


def pictures(device):
    kwargs = {"features_extractor_kwargs": {"features_dim": 16}, "net_arch": [8]}
    agent = PPO("CnnPolicy", _Dots(), n_steps=16, batch_size=8, n_epochs=1, device=device, policy_kwargs=kwargs, seed=0)
    agent.learn(16)
    return {"norm": torch.stack([p.detach().norm() for p in agent.policy.parameters()])}
