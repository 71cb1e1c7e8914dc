"""Has Harbor itself run a job (checked with Harbor 0.26.0): the reference solution of each task of a directory, each in a
new container. Harbor's own environment wants the compose plugin; the one here wants the docker command alone.

    harbor_job.py TASKS JOBS
"""

import asyncio
import sys
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.job import Job
from harbor.models.job.config import DatasetConfig, JobConfig
from harbor.models.trial.config import EnvironmentConfig


async def docker(*words, timeout=None):
    process = await asyncio.create_subprocess_exec(
        "docker", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), timeout)
    return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode)


async def must(*words):
    result = await docker(*words, timeout=120)
    if result.return_code != 0:
        raise RuntimeError(f"docker {words[0]}: {result.stderr}")
    return result.stdout.strip()


class ByDocker(BaseEnvironment):
    container = None

    @staticmethod
    def type():
        return "by-docker"

    def _validate_definition(self):
        if not self.task_env_config.docker_image:
            raise FileNotFoundError("the task names no image")

    async def start(self, force_build):
        self.container = await must("run", "-d", "--rm", "--network", "none", "-w", "/work", self.task_env_config.docker_image, "sleep", "600")
        await must("exec", self.container, "mkdir", "-p", "/logs/agent", "/logs/verifier", "/logs/artifacts", "/tests", "/solution")

    async def stop(self, delete):
        if self.container:
            await must("rm", "-f", self.container)

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
        words = ["exec"]
        for name, value in (env or {}).items():
            words += ["-e", f"{name}={value}"]
        if cwd:
            words += ["-w", cwd]
        if user is not None:
            words += ["-u", str(user)]
        return await docker(*words, self.container, "sh", "-c", command, timeout=timeout_sec)

    async def upload_file(self, source_path, target_path):
        await must("cp", str(source_path), f"{self.container}:{target_path}")

    async def upload_dir(self, source_dir, target_dir):
        await must("exec", self.container, "mkdir", "-p", target_dir)
        await must("cp", f"{source_dir}/.", f"{self.container}:{target_dir}")

    async def download_file(self, source_path, target_path):
        await must("cp", f"{self.container}:{source_path}", str(target_path))

    async def download_dir(self, source_dir, target_dir):
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        await must("cp", f"{self.container}:{source_dir}/.", str(target_dir))


async def main(tasks, jobs):
    config = JobConfig(
        job_name="job",
        jobs_dir=Path(jobs),
        datasets=[DatasetConfig(path=Path(tasks))],
        environment=EnvironmentConfig(import_path="harbor_job:ByDocker", override_memory_mb=256),
        n_concurrent_trials=1,
        quiet=True,
    )
    job = await Job.create(config)
    await job.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
