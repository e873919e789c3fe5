# Formula of a tap. `packaging/stamp.py` writes version and hashes of a release. Wheels, by hash: from source cryptography and
# pydantic-core would need Rust.
class CoretoolsWorkstation < Formula
  include Language::Python::Virtualenv

  desc "Developer-tools MCP server, confined to the directories that you choose"
  homepage "https://github.com/coretools/coretools"
  url "https://github.com/coretools/coretools/releases/download/v0.0.0/coretools_workstation-0.0.0-py3-none-any.whl",
      using: :nounzip
  version "0.0.0"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "MIT"

  depends_on "python@3.13"

  resource "requirements" do
    url "https://github.com/coretools/coretools/releases/download/v0.0.0/requirements.txt"
    sha256 "1111111111111111111111111111111111111111111111111111111111111111"
  end

  def install
    virtualenv_create(libexec, "python3.13")
    pip = ["python3.13", "-m", "pip", "--python=#{libexec}/bin/python", "install", "--no-deps"]
    resource("requirements").stage { system(*pip, "--require-hashes", "-r", "requirements.txt") }
    system(*pip, Dir["*.whl"].first)
    bin.install_symlink libexec.glob("bin/coretools*")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/coretools-workstation --version")
    (testpath/"a.txt").write "hello"
    assert_match "hello", shell_output("#{bin}/coretools call read_file path=a.txt")
  end
end
