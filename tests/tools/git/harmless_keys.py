"""Keys of git that name no program, file, address or repository, as `git help --config` lists them."""

SECTIONS = frozenset({"advice", "color", "column"})
"""Sections with nothing else: hints, colours and layouts."""

HARMLESS = """
add: ignoreErrors interactive.useBuiltin
am: keepcr threeWay
apply: ignoreWhitespace whitespace
author: email name
blame: blankBoundary coloring date markIgnoredLines markUnblamableLines showEmail showRoot
branch: x.description x.merge x.rebase autoSetupMerge autoSetupRebase sort
bundle: x x.x mode version
checkout: defaultRemote guess thresholdForParallelism workers
clean: requireForce
clone: defaultRemoteName filterSubmodules rejectShallow
commit: cleanup status verbose
commitGraph: generationVersion maxNewFilters readChangedPaths
committer: email name
completion: commands
core: abbrev alternateRefsPrefixes autocrlf bare bigFileThreshold checkRoundtripEncoding checkStat commentChar
core: commitGraph compression createObject deltaBaseCacheLimit eol fileMode filesRefLockTimeout fsmonitorHookVersion
core: fsync fsyncMethod fsyncObjectFiles hideDotFiles ignoreCase ignoreStat logAllRefUpdates looseCompression
core: multiPackIndex notesRef packedGitLimit packedGitWindowSize packedRefsTimeout precomposeUnicode preferSymlinkRefs
core: preloadIndex protectHFS protectNTFS repositoryFormatVersion restrictinheritedhandles safecrlf sharedRepository
core: sparseCheckout sparseCheckoutCone splitIndex symlinks trustctime unsetenvvars untrackedCache useReplaceRefs
core: warnAmbiguousRefs whitespace
credential: x.x protectProtocol sanitizePrompt username
credentialCache: ignoreSIGHUP
credentialStore: lockTimeoutMS
diff: x.binary x.wordRegex algorithm autoRefreshIndex colorMoved colorMovedWS context dirstat ignoreSubmodules
diff: indentHeuristic interHunkContext mnemonicPrefix noprefix relative renameLimit renames statGraphWidth submodule
diff: suppressBlankEmpty wordRegex wsErrorHighlight
difftool: prompt trustExitCode
extensions: objectFormat
fastimport: unpackLimit
feature: x experimental manyFiles
fetch: fsckObjects negotiationAlgorithm output parallel prune pruneTags recurseSubmodules showForcedUpdates
fetch: unpackLimit writeCommitGraph
format: attach cc coverFromDescription coverLetter encodeEmailHeaders filenameMaxLength forceInBodyFrom from headers
format: notes numbered pretty signOff signature subjectPrefix suffix thread to useAutoBase
fsmonitor: allowRemote
gc: x.reflogExpire x.reflogExpireUnreachable aggressiveDepth aggressiveWindow auto autoDetach autoPackLimit
gc: bigPackThreshold cruftPacks logExpiry packRefs pruneExpire reflogExpire reflogExpireUnreachable rerereResolved
gc: rerereUnresolved worktreePruneExpire writeCommitGraph
gitcvs: allBinary commitMsgAnnotation dbPass dbTableNamePrefix dbUser enabled usecrlfattr
gitweb: avatar blame category description grep highlight owner patches pickaxe remote_heads showSizes snapshot
gpg: format minTrustLevel
grep: column extendedRegexp fallbackToNoIndex fullName lineNumber patternType threads
gui: blamehistoryctx commitMsgWidth copyBlameThreshold diffContext displayUntracked encoding fastCopyBlame
gui: matchTrackingBranch pruneDuringFetch trustmtime
guitool: x.argPrompt x.confirm x.noConsole x.noRescan x.prompt x.revPrompt x.revUnmerged x.title
help: autoCorrect format
i18n: commitEncoding logOutputEncoding
index: recordEndOfIndexEntries recordOffsetTable sparse threads version
init: defaultBranch
interactive: singleKey
log: abbrevCommit date decorate diffMerges excludeDecoration follow graphColors initialDecorationSet mailmap showRoot
lsrefs: unborn
mailinfo: scissors
maintenance: x.enabled x.schedule auto commit-graph.auto incremental-repack.auto loose-objects.auto strategy
merge: x.name x.recursive autoStash branchdesc conflictStyle defaultToUpstream directoryRenames ff log renameLimit
merge: renames renormalize stat suppressDest verbosity
mergetool: x.hideResolved x.trustExitCode hideResolved keepBackup keepTemporaries meld.hasOutput meld.useAutoMerge
mergetool: prompt writeToTemp
notes: x.mergeStrategy displayRef mergeStrategy rewrite.x rewriteMode rewriteRef
pack: allowPackReuse compression deltaCacheLimit deltaCacheSize depth indexVersion island islandCore packSizeLimit
pack: preferBitmapTips threads useBitmaps useSparse window windowMemory writeBitmapHashCache writeBitmapLookupTable
pack: writeReverseIndex
pretty: x
pull: ff rebase
push: autoSetupRemote default followTags negotiate pushOption recurseSubmodules useBitmaps useForceIfIncludes
rebase: abbreviateCommands autoSquash autoStash backend forkPoint instructionFormat missingCommitsCheck
rebase: rescheduleFailedExec stat updateRefs
receive: advertiseAtomic advertisePushOptions autogc certNonceSeed certNonceSlop denyCurrentBranch denyDeleteCurrent
receive: denyDeletes denyNonFastForwards fsckObjects hideRefs keepAlive maxInputSize unpackLimit updateServerInfo
remote: x.fetch x.mirror x.proxyAuthMethod x.prune x.pruneTags x.push x.skipFetchAll x.tagOpt
repack: cruftDepth cruftThreads cruftWindow cruftWindowMemory packKeptObjects updateServerInfo useDeltaBaseOffset
repack: useDeltaIslands writeBitmaps
rerere: enabled
revert: reference
safe: bareRepository
showBranch: default
sparse: expectFilesOutsideOfPatterns
splitIndex: maxPercentChange sharedIndexExpire
stash: showIncludeUntracked showPatch showStat
status: aheadBehind branch displayCommentPrefix relativePaths renameLimit renames short showStash showUntrackedFiles
status: submoduleSummary
submodule: x.active x.branch x.fetchRecurseSubmodules x.ignore active alternateErrorStrategy alternateLocation
submodule: fetchJobs propagateBranches recurse
tag: forceSignAnnotated sort
tar: umask
transfer: advertiseSID fsckObjects hideRefs unpackLimit
uploadarchive: allowUnreachable
uploadpack: allowAnySHA1InWant allowFilter allowReachableSHA1InWant allowRefInWant allowTipSHA1InWant hideRefs
uploadpack: keepAlive
uploadpackfilter: x.allow allow tree.maxDepth
user: email name useConfigOnly
versionsort: suffix
worktree: guessRemote
"""
"""By section; `x` stands for any name. A key that is missing here has to be in `coretools.roots.git_programs`."""

ONLY_OF_THE_USER = frozenset({"trace2"})
"""Sections that git reads from the files of the user and the system alone (git-config(1))."""
